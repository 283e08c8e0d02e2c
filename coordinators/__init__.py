"""The ZooKeeper side: the queue of candidates for the lead, and the content of each batch, recorded before it is
emitted.

**Which store is the authority.** Postgres. Its fence row says who may write (R4), its ledger says what is committed.
ZooKeeper holds three things that must be durable *before* work starts: the queue of candidates (`election`), the epoch
(`topology_nodes`, R2), and the metadata and attempt ids of uncommitted batches (R3). The mark `currtx` may be lower
than in the ledger. It never decides what is committed; it only shows that Postgres has lost commits.

**What the fencing token is.** The epoch: a number that Postgres assigns under the lock of the fence row (R1), and that
is written here by compare-and-set. Each later write is one multi that first checks the version of the epoch node, so a
driver with an old epoch changes nothing. To be first in the queue decides only who tries, and is never a right to
write. Sequence numbers overflow and start again, so they only order the queue (Z10).

**How long a state is trusted.** CONNECTED proves nothing: a driver that was paused for longer than its session believes
that it leads (Z1). SUSPENDED is not LOST, and kazoo reports LOST only after a reconnect (Z5). So every write checks
again, and reads are trusted only after the epoch was written on the same session (Z8).

**What happens when something breaks.**

* *A reply is lost.* `ZooKeeperUnavailable`: the write may have happened. Create-only nodes and the epoch are read back
  and compared byte by byte.
* *The session is lost.* It is never used again: the client ends with its first session, and never sends what it had
  queued (Z2, Z4, Z6). The driver steps down, and competes again with a new session and a new nonce (R15).
* *ZooKeeper was wiped.* It reads as "no incarnation". The new leader writes its epoch and restores plans, mark and
  attempt ids from Postgres (R11).
* *ZooKeeper was restored, or is another one.* Another incarnation, or a node without the nodes that belong to it, halts
  the topology with the path (R11, Z13).
* *A node cannot be read.* It halts the topology with the path, and never reads as "no state" (Z14).

Modules: `paths` and `codec` define paths and content of the nodes, `read_nodes` reads them; `zookeeper_session` is a
session on kazoo, `memory` one without a server. `election` and `topology_nodes` use `txtopo.ports.CoordinatorSession`
only, so the same code runs on both.
"""
