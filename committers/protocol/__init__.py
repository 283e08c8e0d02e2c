"""The commit of a batch, on the ports only, and what every ledger shares: comparisons, the phases of a commit, and user
code in the database transaction.
"""
