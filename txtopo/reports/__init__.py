"""From ledger rows to what a person or a program reads: rows to model to text or JSON. Only reads; needs neither
ZooKeeper nor a leader.
"""
