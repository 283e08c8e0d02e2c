"""Who makes a batch visible, once, in order: the fence, the ledger and the committers' tables in Postgres.

Postgres is the authority. Whoever holds the newest epoch of the fence row may write, and every database transaction
here compares it (R4);
a driver's own belief that it leads, or ZooKeeper's, decides nothing. COMMIT of batch n is one database transaction that
applies every
committer, writes the ledger row n and moves the fence from n - 1 to n (R13).

When things break: a definite refusal is an abort and the batch is tried again; silence after COMMIT is unknown and is
resolved under the fence
lock on a new connection before anything else is committed (R7); a ledger that says something else than the driver halts
the topology (R5, R6).
"""
