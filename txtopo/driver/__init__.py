"""The loop of a leader, on ports only: it takes the lead, plans batches, performs the actions of the machine and
reports progress.
"""
