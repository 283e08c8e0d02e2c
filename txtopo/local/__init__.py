"""Postgres, ZooKeeper and Java on this machine, for the demo, for development and for tests; never for production.

Every service listens on 127.0.0.1 only and has a separate folder. Any process can find and stop it by that folder.
"""
