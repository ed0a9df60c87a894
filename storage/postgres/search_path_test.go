package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// impostors makes a schema whose tables, types and functions have the names of those that
// the storage uses, and whose functions fail. Operators are left alone: no statement can
// name their schema and keep their precedence.
const impostors = `
CREATE SCHEMA {schema};
CREATE TABLE {schema}.job (id integer);
CREATE TABLE {schema}.tally (n text);
CREATE TABLE {schema}.migration (version text);
CREATE TABLE {schema}.queue_state (x integer);
CREATE DOMAIN {schema}.text AS pg_catalog.int4;
CREATE DOMAIN {schema}.bytea AS pg_catalog.int4;
CREATE DOMAIN {schema}.float8 AS pg_catalog.int4;
CREATE FUNCTION {schema}.count() RETURNS pg_catalog.text LANGUAGE sql AS $$ SELECT 1/0 $$;
DO $do$ DECLARE f record; t pg_catalog.text; BEGIN
	FOR f IN SELECT DISTINCT p.proname, pg_catalog.replace(pg_catalog.replace(
			pg_catalog.pg_get_function_identity_arguments(p.oid), 'VARIADIC ', ''), '"any"', 'pg_catalog.text') AS args
		FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = 'pg_catalog' AND p.proname IN ('nextval', 'set_config', 'current_setting', 'pg_notify',
			'hashtextextended', 'clock_timestamp', 'cardinality', 'generate_series', 'pg_advisory_xact_lock',
			'pg_logical_emit_message', 'pg_current_snapshot', 'pg_snapshot_xmin', 'pg_snapshot_xmax', 'convert_to', 'convert_from', 'encode', 'now', 'min', 'max', 'sum',
			'bool_or', 'row_number', 'split_part', 'starts_with', 'strpos', 'substr')
			AND p.prokind IN ('f', 'a', 'w')
	LOOP
		FOREACH t IN ARRAY ARRAY[f.args, pg_catalog.replace(f.args, 'regclass', 'pg_catalog.text')] LOOP
			BEGIN
				EXECUTE pg_catalog.format(
					'CREATE FUNCTION {schema}.%I(%s) RETURNS pg_catalog.point LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile''; END $f$',
					f.proname, t);
			EXCEPTION WHEN duplicate_function OR invalid_function_definition OR feature_not_supported THEN NULL;
			END;
		END LOOP;
	END LOOP;
	FOREACH t IN ARRAY ARRAY['pg_catalog.text[]', 'bigint[]', 'smallint[]', 'integer[]'] LOOP
		EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.unnest(%s) RETURNS pg_catalog.point LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile''; END $f$', t);
		EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.array_position(%s, %s) RETURNS pg_catalog.point LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile''; END $f$',
			t, pg_catalog.replace(t, '[]', ''));
		EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.width_bucket(%s, %s) RETURNS pg_catalog.point LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile''; END $f$',
			pg_catalog.replace(t, '[]', ''), t);
	END LOOP;
	FOREACH t IN ARRAY ARRAY['pg_catalog.text', 'bigint', 'integer'] LOOP
		EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.num_nonnulls(%s) RETURNS pg_catalog.point LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile''; END $f$', t);
		EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.array_agg(%s) RETURNS pg_catalog.point LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile''; END $f$', t);
		EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.count(%s) RETURNS pg_catalog.point LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''hostile''; END $f$', t);
	END LOOP;
END $do$`

// A search_path that begins with a schema of impostors changes nothing: neither
// migrations, nor what the storage does, nor transactions of the caller's.
func TestHostileSearchPath(t *testing.T) {
	admin := connect(t)
	evil := schema(t, admin)
	_, err := admin.Exec(t.Context(), strings.ReplaceAll(impostors, "{schema}", evil))
	must(t, err)
	cfg := admin.Config()
	cfg.ConnConfig.RuntimeParams["search_path"] = evil + ", pg_catalog"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM job").Scan(&n); err == nil {
		t.Fatal("the path is not hostile")
	}
	on := configOn(t, pool)
	storagetest.SameBehaviour(t, on)
	storagetest.RunEngine(t, on)
	t.Run("WithTx", func(t *testing.T) {
		name := schema(t, admin)
		s := openAs(t, pool, name, postgres.WithPoll(10*time.Millisecond))
		eng := newEngine(t, s)
		must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := eng.Enqueue(postgres.WithTx(t.Context(), tx), "x", 1)
			return err
		}))
		var shown string
		must(t, pool.QueryRow(t.Context(), "SELECT args FROM "+name+".jobs").Scan(&shown))
		if shown != "1" {
			t.Errorf("the view shows %s", shown)
		}
		_, err := pool.Exec(context.Background(), "DELETE FROM "+name+".stage")
		must(t, err)
		checkCounts(t, admin, name)
	})
}
