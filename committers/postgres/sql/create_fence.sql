insert into txtopo.fence (topology, incarnation, owner_nonce, epoch, code_hash, opaque)
values (%(topology)s, %(incarnation)s, %(owner_nonce)s, %(epoch)s, %(code_hash)s, %(opaque)s);
insert into txtopo.ledger (topology, txid, digest, incarnation, epoch, attempt, code_hash, state)
values (%(topology)s, 0, %(digest)s, %(incarnation)s, %(epoch)s, 0, %(code_hash)s, 'genesis')
