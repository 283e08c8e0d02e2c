"""The ledger in Postgres: the fence, the ledger rows, the tables of committers, each method one database
transaction.
"""
