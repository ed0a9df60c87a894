package postgres

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// columns are those of a job, in the order in which scan reads them.
const columns = `j.seq, j.place, j.id, j.queue, j.type, j.state, j.priority, j.attempt, j.version, j.wake, j.deadline, j.created,
	j.enqueued, j.started, j.next_retry, j.finished, j.dead, j.lease_until, j.lease, j.progress, j.worker, j.fingerprint, j.rate_key,
	j.args, j.job, j.outcome, j.checkpoint, j.depends`

// whole is a job j as it is stored: its row of job, and the row of stage or of one of its
// partitions.
const whole = `(SELECT s.seq, s.place, b.id, s.queue, s.type, s.state, s.priority, s.attempt, s.version, s.wake, s.deadline,
	b.created, s.enqueued, s.started, s.next_retry, s.finished, s.dead, s.lease_until, b.lease,
	coalesce(s.progress, 0) AS progress, coalesce(s.worker, '') AS worker, s.fingerprint, s.rate_key,
	b.args, b.job, s.outcome, s.checkpoint, b.depends, s.kept, s.released, s.other_place, s.awaited, s.own_place
	FROM {schema}.{of} s JOIN {schema}.job b ON b.seq = s.seq) j`

// seqsOfIDs are the numbers of the jobs with the ids $1. A statement that has them sorts
// by number along an index of numbers. With the ids, and without sorts, that index would
// lead it through all jobs.
const seqsOfIDs = `ARRAY(SELECT i.seq FROM {schema}.job i WHERE i.id = ANY ($1::text[]))`

// standings are the columns of stage.
var standings = strings.Fields(`seq place version attempt other_place wake deadline enqueued started next_retry finished dead
	lease_until kept released created progress priority state limited queue type worker fingerprint rate_key
	outcome checkpoint awaited bounds fair_key share own_place`)

// standingBut are the columns of stage but for some, each of which has an expression
// behind its name.
func standingBut(changes ...string) string {
	list := slices.Clone(standings)
	for i := 0; i < len(changes); i += 2 {
		list[slices.Index(standings, changes[i])] = changes[i+1]
	}
	return strings.Join(list, ", ")
}

// peerCreated is when a job was created, for the order of equal jobs.
const peerCreated = `CASE WHEN fingerprint IS NOT NULL THEN created END`

// limited says whether a job has a rate limit or an enqueue TTL. It finds such a member
// in meta and extra, too.
const limited = `nullif(rate_key IS NOT NULL OR job IS NOT NULL AND (
	position('"rate_limit":'::bytea IN job) > 0 OR position('"enqueue_ttl":'::bytea IN job) > 0), false)`

// alike is how the tally tells jobs of one queue and state apart.
const alike = `CASE WHEN kept IS NULL THEN dead IS NOT NULL END`

// given are jobs that come as one array for each column, as arguments makes them. A time
// that is not set is the least bigint, and a text that is not set the empty one: arrays
// without NULLs are much cheaper to send.
var given = func() string {
	var names, kinds, values []string
	for i, f := range fields {
		names, kinds = append(names, f.name), append(kinds, fmt.Sprintf("$%d::%s[]", i+1, f.sql))
		switch value := "u." + f.name; {
		case f.name == "share":
			values = append(values, "CASE WHEN u.fair_key <> '' THEN u.share END AS share")
		case f.none != "":
			values = append(values, "nullif("+value+", "+f.none+") AS "+f.name)
		default:
			values = append(values, value)
		}
	}
	return "(SELECT " + strings.Join(values, ", ") + ", u.ord FROM unnest(" + strings.Join(kinds, ", ") +
		") WITH ORDINALITY AS u (" + strings.Join(names, ", ") + ", ord) ORDER BY u.ord)"
}()

// bySeq has the numbers of the jobs of c in the order of seq, and ordOf finds that of a
// job j among them: a binary search, where array_position would read half of the array.
const (
	bySeq = `by_seq AS MATERIALIZED (SELECT array_agg(seq ORDER BY seq) AS seqs, array_agg(ord ORDER BY seq) AS ords
		FROM c WHERE seq IS NOT NULL)`
	ordOf = `((SELECT ords FROM by_seq))[width_bucket(j.seq, (SELECT seqs FROM by_seq))]`
)

// One more than the greatest number would fail the statement, for all jobs of it. So
// numbers that no job comes to stay as they are.
const (
	attempt1 = `j.attempt + (j.attempt BETWEEN 0 AND {most})::integer`
	version1 = `j.version + (j.version BETWEEN 1 AND {most})::integer`
)

// until is when a lease of a job b ends that begins at $1: at the latest at the last time
// that a column holds.
const until = `$1::bigint + least(b.lease, 9223372036854775807 - greatest($1::bigint, 0))`

// leaseFor is storage.Record.LeaseFor. {lease} is the lease of a claim or a renewal,
// which is the default if none is set.
const leaseFor = `CASE WHEN {lease}::bigint < 0 THEN -{lease}::bigint WHEN b.lease = {default_lease} THEN {lease}::bigint ELSE b.lease END`

// untilOf is until with another lease of a job b.
func untilOf(lease string) string { return strings.ReplaceAll(until, "b.lease", lease) }

// untilGiven is until with the lease of a claim or a renewal of a job.
func untilGiven(lease, given string) string {
	return untilOf(strings.NewReplacer("{lease}", given, "b.lease", lease).Replace(leaseFor))
}

// waits is the order among jobs that wait for the same time.
const waits = `(CASE WHEN state = 3 THEN coalesce(other_place, place) ELSE place END)`

// first is the version in which a job is stored that has drawn a place. Each transition
// of a job raises its version by one and draws a place, or is one of fewer in a call than
// there are versions between two places; so the next place is above every version of a
// job that was deleted. An insert that has drawn its place may wait for that deletion:
// the gap has room for what the job went through meanwhile. Jobs of older versions of
// this package began at 1.
const first = `place * 65536`

// roundsKey names the advisory lock of the rounds of a queue l: see fair.go.
const roundsKey = `hashtextextended('{name} fair ' || l.queue, 3131961357)`

// lockRounds locks the rounds of a queue l until the transaction ends.
const lockRounds = `pg_advisory_xact_lock(` + roundsKey + `)`

// impossible are jobs that no other statement may meet: of no state, or with numbers that
// no job comes to.
const impossible = `(state < 1 OR state > 8 OR attempt < 0 OR attempt > {most} OR version < 1 OR version > {most})`

var (
	functions = regexp.MustCompile(`\b(array_agg|array_position|bool_or|cardinality|clock_timestamp|convert_to|count|` +
		`current_setting|generate_series|hashtextextended|max|min|nextval|num_nonnulls|pg_advisory_xact_lock|pg_current_snapshot|pg_is_in_recovery|pg_logical_emit_message|pg_notify|pg_sequence_last_value|pg_try_advisory_xact_lock|` +
		`pg_snapshot_xmax|pg_snapshot_xmin|row_number|set_config|setval|split_part|starts_with|strpos|substr|sum|width_bucket)\(`)
	unnestOne = regexp.MustCompile(`\bunnest\((\$\d+::[a-z]+\[\]|ARRAY\[[^\]]*\])\)`)
	types     = regexp.MustCompile(`::(text|bytea|float8|numeric)\b`)
)

// inCatalog names the schema of the functions and types of a statement, so that no
// search_path puts others in their place. PostgreSQL itself does so for an unnest of
// several arrays, and for coalesce and what else its grammar knows.
func inCatalog(sql string) string {
	sql = functions.ReplaceAllString(sql, "pg_catalog.$1(")
	sql = unnestOne.ReplaceAllString(sql, "pg_catalog.unnest($1)")
	return types.ReplaceAllString(sql, "::pg_catalog.$1")
}

// statement is a statement of the package: its number in defined.
type statement int

// defined are the statements. Each stands next to the function that makes it.
var defined []struct{ name, text string }

// define defines a statement. Variants of a statement share a name.
func define(name, text string) statement {
	defined = append(defined, struct{ name, text string }{name, text})
	return statement(len(defined) - 1)
}

// expanded are the texts of defined with the fragments, without the name of a schema.
var expanded = sync.OnceValue(func() (list []string) {
	inner := strings.NewReplacer("{impossible}", impossible, "{columns}", columns, "{given}", given,
		"{first}", first, "{lock_rounds}", lockRounds, "{rounds_key}", roundsKey,
		"{claimable}", claimable, "{wide}", wide, "{locked_keys}", lockedKeys, "{judging}", judging,
		"{marker}", marker, "{marker_seq}", markerSeq,
		"{whole_ready}", strings.ReplaceAll(whole, "{of}", "ready"),
		"{waits}", waits, "{standing}", "("+standingBut()+")", "{limited}", limited, "{alike}", alike,
		"{whole}", strings.ReplaceAll(whole, "{of}", "stage"), "{seqs}", seqsOfIDs,
		"{until_claimed}", untilGiven("b.lease", "$9"), "{attempt1}", attempt1, "{version1}", version1)
	outer := strings.NewReplacer("{default_lease}", strconv.FormatInt(int64(ojs.DefaultLease), 10),
		"{most_handed}", strconv.FormatInt(int64(storage.TakeOverLease), 10),
		"{most}", strconv.Itoa(rows.MaxCount), "{columns}", columns, "{none}", "-9223372036854775808")
	for _, st := range defined {
		list = append(list, inCatalog(outer.Replace(inner.Replace(st.text))))
	}
	return list
})

// statementsIn returns the texts of the statements for a schema, by their numbers.
func statementsIn(schema string) []string {
	list := slices.Clone(expanded())
	ours := strings.NewReplacer("{schema}", `"`+schema+`"`, "{name}", schema) // it may be a word of SQL's
	for i, text := range list {
		list[i] = ours.Replace(text)
	}
	return list
}
