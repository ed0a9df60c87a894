package main

import (
	"cmp"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/storage"
)

// pgDoctor asks a PostgreSQL server what the contract of storages does not tell.
type pgDoctor struct {
	pool   *pgxpool.Pool
	schema string
}

func connectDoctor(c *call) (*pgDoctor, error) {
	pool, _, err := poolOf(c.ctx, c.flags.Storage, c.flags.Schema)
	if err != nil {
		return nil, err
	}
	return &pgDoctor{pool, cmp.Or(c.flags.Schema, "ojs")}, nil
}

// connections finds a server whose connections are nearly all in use.
func (d *doctor) connections() ([]finding, error) {
	if d.pg == nil {
		return nil, errCannotAsk
	}
	var used, most int
	err := d.pg.pool.QueryRow(d.ctx, `SELECT count(*), current_setting('max_connections')::int
		- current_setting('superuser_reserved_connections')::int FROM pg_stat_activity
		WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'`).Scan(&used, &most)
	if err != nil || float64(used) < float64(most)*d.bounds.connections {
		return nil, err
	}
	return []finding{{Fault: fmt.Sprintf("%d of %d connections are in use", used, most),
		Fix: "make the pools of programs smaller (pool_max_conns), put PgBouncer before it, or raise max_connections"}}, nil
}

// server finds a server that takes no changes, vacuums nothing, or whose notices do not
// arrive.
func (d *doctor) server() (found []finding, err error) {
	if checker, ok := storage.As[storage.NotifyChecker](d.opened); ok {
		if err := checker.CheckNotify(); err != nil {
			found = append(found, finding{Fault: "notices of other processes do not arrive: " +
				plainError(err),
				Fix: "connect to the server itself, or to a pooler in session mode"})
		}
	}
	if d.pg == nil {
		if found == nil {
			return nil, errCannotAsk
		}
		return found, nil
	}
	var standby, readOnly, vacuums bool
	err = d.pg.pool.QueryRow(d.ctx,
		`SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool,
		current_setting('autovacuum')::bool`).Scan(&standby, &readOnly, &vacuums)
	if standby || readOnly {
		found = append(found, finding{Fault: "the server takes no changes",
			Fix: "connect to the primary: target_session_attrs=read-write with several hosts finds it"})
	}
	if err == nil && !vacuums {
		found = append(found, finding{Fault: "autovacuum is off, so that dead rows stay",
			Fix: "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()"})
	}
	return found, err
}

// replicaIdentity finds tables that logical replication could not replicate changes of.
func (d *doctor) replicaIdentity() ([]finding, error) {
	return d.tables(`SELECT c.oid::regclass::text, '' FROM pg_class c WHERE relnamespace = $1::regnamespace
		AND relkind = 'r' AND relpersistence = 'p' AND (relreplident = 'n' OR relreplident = 'd' AND NOT EXISTS
			(SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
		ORDER BY 1`, func(table, _ string) finding {
		return finding{Fault: "table " + table +
			" has no replica identity: changes of a published table would fail",
			Fix: "ALTER TABLE " + table + " REPLICA IDENTITY FULL"}
	})
}

// bloat finds tables of which most rows are dead, and that autovacuum has not reached.
func (d *doctor) bloat() ([]finding, error) {
	if d.file != nil {
		return d.file.bloat(d.bounds.spare)
	}
	return d.tables(`SELECT relid::regclass::text, n_dead_tup::text FROM pg_stat_user_tables
		WHERE schemaname = $1 AND n_dead_tup > $2 AND n_dead_tup > n_live_tup
		AND coalesce(greatest(last_autovacuum, last_vacuum), '-infinity') < now() - interval '10 minutes'
		ORDER BY n_dead_tup DESC`,
		func(table, dead string) finding {
			return finding{Fault: "table " + table + " has " + dead + " dead rows, more than live ones",
				Fix: "end old transactions, then: VACUUM " + table}
		}, d.bounds.dead)
}

// transactions finds transactions that keep dead rows in the way, prepared ones included.
func (d *doctor) transactions() ([]finding, error) {
	found, err := d.tables(`SELECT pid::text, date_trunc('second', now() - xact_start)::text FROM pg_stat_activity
		WHERE $1 <> '' AND datname = current_database() AND backend_type = 'client backend'
		AND now() - xact_start > $2 * interval '1 second' ORDER BY xact_start`,
		func(pid, age string) finding {
			return finding{Fault: "the transaction of process " + pid + " is open for " + age +
				", and keeps dead rows",
				Fix: "end it in its program, or: SELECT pg_terminate_backend(" + pid + ")"}
		}, d.bounds.transaction.Seconds())
	if err != nil {
		return nil, err
	}
	prepared, err := d.tables(`SELECT gid, date_trunc('second', now() - prepared)::text FROM pg_prepared_xacts
		WHERE $1 <> '' AND database = current_database()
		AND now() - prepared > $2 * interval '1 second' ORDER BY prepared`,
		func(gid, age string) finding {
			return finding{Fault: "the prepared transaction " + gid + " is open for " + age +
				", and keeps dead rows", Fix: "COMMIT PREPARED or ROLLBACK PREPARED"}
		}, d.bounds.transaction.Seconds())
	if err != nil {
		return nil, err
	}
	if found = append(found, prepared...); len(found) > 0 {
		return found, nil
	}
	var hidden int
	err = d.pg.pool.QueryRow(d.ctx, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type IS NULL`).Scan(&hidden)
	if err == nil && hidden > 0 {
		err = cannotTell(counted(hidden, "transaction") +
			" of other users may be hidden: GRANT pg_read_all_stats")
	}
	return nil, err
}

// tables makes a finding of each row of a query about the schema.
func (d *doctor) tables(query string, of func(first, second string) finding, args ...any) ([]finding, error) {
	if d.pg == nil {
		return nil, errCannotAsk
	}
	rows, err := d.pg.pool.Query(d.ctx, query, append([]any{d.pg.schema}, args...)...)
	if err != nil {
		return nil, err
	}
	var first, second string
	var found []finding
	_, err = pgx.ForEachRow(rows, []any{&first, &second}, func() error {
		found = append(found, of(first, second))
		return nil
	})
	return found, err
}
