insert into txtopo.ledger (topology, txid, prev_txid, prev_digest, digest, incarnation, epoch, attempt, cut, code_hash, redo_of, backfills, committer, state, planned_at)
values (%(topology)s, %(txid)s, %(txid)s - 1, %(prev_digest)s, %(digest)s, %(incarnation)s, %(epoch)s, %(attempt)s, %(cut)s, %(code_hash)s, %(redo_of)s, %(backfills)s, %(backfills_into)s, 'applying',
        (select created_at from txtopo.plan where topology = %(topology)s and txid = %(txid)s and cut = %(cut)s))
