"""The commit of a batch, written against the ports only, and what every ledger shares: comparisons, the turn of a
batch, user code in the transaction.
"""
