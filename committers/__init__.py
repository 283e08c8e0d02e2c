"""The Postgres side: committers make a batch visible, once and in order. Fence, ledger, and the tables of committers.

Postgres is the authority. The driver with the newest epoch of the fence row may write, and every database transaction
here compares it (R4). That a driver believes that it leads, or that ZooKeeper says so, decides nothing. The COMMIT of
batch n is one database transaction that applies every committer, writes ledger row n and advances the fence from n - 1
to n (R13).

When something breaks: if the server refuses the COMMIT, the batch was aborted and is tried again. If the COMMIT is not
answered, its outcome is unknown and is resolved under the fence lock, on a new connection, before anything else is
committed (R7). If the ledger contradicts the driver, the topology halts (R5, R6).
"""
