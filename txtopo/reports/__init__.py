"""From ledger rows to what a person or a program reads: rows, model, then text or JSON. Only reads; needs neither
ZooKeeper nor a leader.
"""
