"""The ledger in memory, with the same rules as the one in Postgres: for simulations, and to test a topology without
services.
"""
