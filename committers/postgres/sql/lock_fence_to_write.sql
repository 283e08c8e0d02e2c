-- R9: never waits for a commit; a takeover waits for it.
select incarnation::text, owner_nonce::text, epoch, code_hash, last_txid, pg_current_xact_id()::text from txtopo.fence where topology = %(topology)s for key share
