"""The ledger in Postgres: the fence, the ledger rows and the tables of committers. Each method of the ledger is one
database transaction.
"""
