"""The ledger in memory, with the same rules as the one in Postgres: for simulations, and for testing a topology without
services.
"""
