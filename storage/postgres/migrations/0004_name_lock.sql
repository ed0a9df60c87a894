-- Locks on names: the fingerprints of unique jobs and the bounded queues. A transaction inserts the hashes of the names that it locks,
-- in their order, and deletes them again: another one that inserts the same hash waits for its end. Such locks are in the rows, so
-- that they need no room in the server's lock table, and no row is left of them. They need not survive a crash.
CREATE UNLOGGED TABLE {schema}.name_lock (
	name bigint NOT NULL PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
