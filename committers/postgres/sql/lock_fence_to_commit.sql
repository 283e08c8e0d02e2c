-- R4: commits wait for each other and for a takeover, not for mirrors.
select incarnation::text, owner_nonce::text, epoch, code_hash, last_txid, pg_current_xact_id()::text from txtopo.fence where topology = %(topology)s for no key update
