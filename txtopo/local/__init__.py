"""Postgres, ZooKeeper and Java on this machine, for the demo, for development and for tests; never for production.

Everything listens on 127.0.0.1 only, lives in a folder of its own and is stopped by that folder, also from another
process.
"""
