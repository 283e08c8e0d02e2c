-- What operators need without ZooKeeper: which inputs a batch has that failed before it was mirrored, what to type after a halt, how the last run was set.

-- Beside each attempt what its batch reads, in short: a plan is mirrored only once its batch was processed.
alter table txtopo.attempt add column inputs jsonb;

-- The next command of the last halt, and the settings that the last driver was given on its command line or by its environment.
alter table txtopo.topology add column advice text;
alter table txtopo.topology add column settings jsonb not null default '{}';
