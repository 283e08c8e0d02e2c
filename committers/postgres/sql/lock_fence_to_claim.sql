-- R1: waits for commits and mirrors in progress.
select incarnation::text, owner_nonce::text, epoch, code_hash, last_txid, pg_current_xact_id()::text from txtopo.fence where topology = %(topology)s for update
