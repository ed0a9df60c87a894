package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/storage"
)

// WithClock sets the clock of this machine.
func WithClock(c clock.Clock) Option { return func(cfg *config) { cfg.clock = c } }

// WithDeafEar keeps notifications from coming, as behind a pooler of transactions.
func WithDeafEar() Option { return func(c *config) { c.deaf = true } }

// Pending returns how many calls wait for a statement to share.
func (s *Storage) Pending() int {
	return pending(&s.inserts) + pending(&s.insertsInTurn) + pending(&s.settles) + pending(&s.settlesInTurn)
}

func pending[C waiting](b *batcher[C]) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending)
}

// CheckMigrations tells of a migration whose number is not that of its place.
func CheckMigrations() error {
	files, err := migrations.ReadDir("migrations")
	for i, f := range files {
		if !strings.HasPrefix(f.Name(), fmt.Sprintf("%04d_", i+1)) {
			err = errors.Join(err, fmt.Errorf("%s is migration %d", f.Name(), i+1))
		}
	}
	return err
}

// NewestVersion is that of the schema.
func NewestVersion() int {
	files, _ := migrations.ReadDir("migrations")
	return len(files)
}

// MakeVersion makes a schema as an older version of this package did.
func MakeVersion(ctx context.Context, pool *pgxpool.Pool, schema string, version int) error {
	s, err := newStorage(pool, []Option{WithSchema(schema)})
	if err != nil {
		return err
	}
	all, err := steps(schema)
	if err != nil {
		return err
	}
	return s.begun(ctx, tuned{s: s}, func(t *tx) { t.migrate(all[:version]) })
}

// StatementNames returns the names of the statements in a schema, by their text.
func StatementNames(schema string) map[string]string {
	names := make(map[string]string)
	for i, text := range statementsIn(schema) {
		names[text] = defined[i].name
	}
	return names
}

// Replace replaces a part of a statement, "" for all of it. Calls that make the statement
// are still to come.
func (s *Storage) Replace(name, part, by string) error {
	for i := range s.sql {
		switch {
		case defined[i].name != name:
			continue
		case part == "":
			s.sql[i] = by
		case !strings.Contains(s.sql[i], part):
			return fmt.Errorf("%s has no %q", name, part)
		default:
			s.sql[i] = strings.ReplaceAll(s.sql[i], part, by)
		}
		return nil
	}
	return fmt.Errorf("no statement is named %s", name)
}

// ForgetIdle forgets keys as a claim does that adds one.
func (s *Storage) ForgetIdle(ctx context.Context, now time.Time) error {
	return s.forgetIdle(ctx, rows.Nanos(now))
}

// CompactServed forgets rounds as a look does.
func (s *Storage) CompactServed(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.sql[compactServedSQL])
	return err
}

// Tune is the statement with the settings for the planner.
func (s *Storage) Tune() string { return s.sql[tuneSQL] }

// Plans returns the plan of each statement that has to stay quick however many jobs are
// stored, as the storage has it planned.
func (s *Storage) Plans(ctx context.Context) (map[string]string, error) {
	now := rows.Nanos(time.Now())
	ids := []string{"a", "b"}
	given := arguments(make([]written, 2))
	none := []string{}
	walk := []any{1, 1, 10, 1, false, []int16(nil), none, none, none, 9, 10, "w", none, none,
		math.MinInt64, math.MaxInt64}
	looks := []any{now, 10, []string{"x"}, none, none, none, none}
	looks = looks[:len(looks):len(looks)]
	claim := append(looks, "w", givenLease(0))
	claim = claim[:len(claim):len(claim)]
	judged := append(claim, 1)
	judged = judged[:len(judged):len(judged)]
	noDocuments := [][]byte{nil, nil}
	claimNew := freshArguments(make([]written, 2))
	claimNew = append(claimNew, []int64{now, now}, "w")
	claimNew = claimNew[:len(claimNew):len(claimNew)]
	plans := make(map[string]string)
	type explained struct {
		sql  string
		args []any
	}
	statements := map[string]explained{
		"get":              {s.sql[getSQL], []any{"a"}},
		"claim":            {s.sql[claimSQL.in], append(claim, []string{"q", "r"})},
		"claim all":        {s.sql[claimSQL.all], claim},
		"claim around":     {s.sql[claimSQL.around], claim},
		"claim these":      {s.sql[claimTheseSQL], []any{now, "w", givenLease(0), []int64{1, 2}}},
		"claim judged":     {s.sql[claimJudgedSQL.in], append(judged, []string{"q", "r"})},
		"ahead judged all": {s.sql[aheadJudgedSQL.all], judged},
		"lock heads":       {s.sql[lockHeadsSQL.in], append(looks, []string{"q", "r"})},
		"lock heads all":   {s.sql[lockHeadsSQL.all], looks},
		"pick heads all":   {s.sql[pickHeadsSQL.all], looks},
		"judge limits":     {s.sql[judgeLimitsSQL], []any{now}},
		"promote":          {s.sql[promoteSQL], []any{1}},
		"closed":           {s.sql[closedSQL], nil},
		"shut lanes":       {s.sql[shutLanesSQL], []any{ids, ids}},
		"set opens":        {s.sql[setOpensSQL], []any{ids, []int64{now, now}, []int64{now, now}}},
		"held":             {s.sql[heldSQL], []any{now}},
		"lock limits":      {s.sql[lockLimitsSQL], []any{[]string{"key", "queue"}, ids, now}},
		"insert claim":     {s.sql[insertClaimInSQL], append(claimNew, ids, noDocuments, givenLease(0))},
		"insert claim all": {s.sql[insertClaimAllSQL], append(claimNew, none, noDocuments, givenLease(0))},
		"logs":             {s.sql[logsSQL], []any{"a"}},
		"add logs":         {s.sql[addLogsSQL], []any{ids, []int64{1, 1}, [][]byte{nil, nil}}},
		"trim logs":        {s.sql[trimLogsSQL], []any{ids, 10}},
		"rest rounds":      {s.sql[restRoundsSQL], []any{ids, []int32{1, 2}}},
		"compact served":   {s.sql[compactServedSQL], nil},
		"counters":         {s.sql[countersSQL], []any{[]string{"key", "queue"}, ids}},
		"start":            {s.sql[startSQL], []any{"key", "a", 1}},
		"set started":      {s.sql[setStartedSQL], []any{"key", "a", "", 1, 1, now}},
		"trim starts":      {s.sql[trimStartsSQL], []any{"key", "a", 1}},
		"take start":       {s.sql[takeStartSQL], []any{"key", "a", now}},
		"stored limits":    {s.sql[storedLimitsSQL], []any{[]string{"key", "queue"}, ids, false}},
		"idle limits":      {s.sql[idleLimitsSQL], []any{now}},
		"forget limits":    {s.sql[forgetLimitsSQL], []any{ids, now, now}},
		"waiting of key":   {s.sql[waitingSQL[storage.LimitKey]], []any{"a", now}},
		"waiting of queue": {s.sql[waitingSQL[storage.LimitQueue]], []any{"a", now}},
		"next limit":       {s.sql[nextLimitSQL], []any{"key", "a"}},
		"settle attempt":   {s.sql[applySQL.attempt], attemptArguments(make([]written, 2), []int64{1, 1})},
		"end attempt":      {s.sql[applySQL.end], attemptArguments(make([]written, 2), []int64{1, 1})},
		"complete":         {s.sql[applySQL.complete], completionArguments(make([]written, 2))},
		"complete step":    {s.sql[stepSQL.complete], completionArguments(make([]written, 2))},
		"end step":         {s.sql[stepSQL.end], attemptArguments(make([]written, 2), []int64{1, 1})},
		"settle step":      {s.sql[stepSQL.attempt], attemptArguments(make([]written, 2), []int64{1, 1})},
		"ahead":            {s.sql[aheadSQL.in], append(claim, []string{"q", "r"})},
		"ahead all":        {s.sql[aheadSQL.all], claim},
		"ahead around":     {s.sql[aheadSQL.around], claim},
		"locked ids":       {s.sql[lockedIDsSQL], []any{ids}},
		"settle all":       {s.sql[applySQL.all], append(given[:len(given):len(given)], []int64{1, 1})},
		"take edges":       {s.sql[takeEdgesSQL], []any{[]int64{1, 2}}},
		"still waiting":    {s.sql[stillWaitingSQL], []any{[]int64{1, 2}}},
		"waiting jobs":     {s.sql[waitingJobsSQL], []any{[]int64{1, 2}}},
		"set depends": {
			s.sql[setDependsSQL], []any{[]int64{1, 2}, noDocuments, []int64{1, 2}, noDocuments},
		},
		"enter lines":   {s.sql[enterLinesSQL], []any{[]int64{1, 2}, ids}},
		"first in line": {s.sql[firstInLineSQL], []any{ids, []int64{1, 2}}},
		"leave line":    {s.sql[leaveLineSQL], []any{[]int64{1, 2}}},
		"set awaited":   {s.sql[setAwaitedSQL], []any{[]int64{1, 2}}},
		"lock changed":  {s.sql[lockChangedSQL], []any{ids}},
		"find":          {s.sql[findSQL], []any{ids}},
		"extend": {
			s.sql[extendSQL], []any{ids, []int64{1, 1}, []float64{0, 0}, noDocuments, now, []int64{1, 1}},
		},
		"due":     {s.sql[dueSQL], []any{now, 10, false}},
		"next":    {s.sql[nextWakeSQL], nil},
		"peers":   {s.sql[peersSQL], []any{ids}},
		"locked":  {s.sql[lockedSQL], []any{[]int64{1, 2}}},
		"kept":    {s.sql[keptUntilSQL], []any{now, 10}},
		"keep on": {s.sql[keepOnSQL], []any{now, []int64{1, 2}, ids, []int64{1, 2}}},
		"release": {s.sql[releaseSQL], []any{now, []int64{1, 2}}},
		"prune":   {s.sql[pruneSQL], []any{[]int16{6, 7, 8}, false, now, 10, 10, now}},
		"remove":  {s.sql[removeSQL], []any{ids}},
		"by seq":  {s.sql[bySeqSQL], []any{[]int64{1, 2}}},
	}
	for name, w := range map[string]way{
		"inserted": walkStageSQL, "rare": walkRareSQL, "dead": walkDeadSQL, "dead of": walkDeadOfSQL,
		"members": walkMembersSQL, "keepers": walkKeepersSQL, "wait": walkDueSQL,
		"rare due": walkRareDueSQL, "ready": walkReadySQL, "finished": walkFinishedSQL,
		"rare finished": walkRareFinishedSQL, "failed": walkFailedSQL,
	} {
		statements[name+" up"] = explained{s.sql[w[0]], walk}
		statements[name+" down"] = explained{s.sql[w[1]], walk}
	}
	for name, st := range statements {
		var line string
		var b strings.Builder
		read := each([]any{&line}, func() { fmt.Fprintln(&b, line) })
		err := tuned{s: s}.query(ctx, sent{"EXPLAIN " + st.sql, st.args, read})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		plans[name] = b.String()
	}
	return plans, nil
}

// Look is what the listener does now and then, with a connection.
func (s *Storage) Look(ctx context.Context, conn *pgx.Conn) error {
	return s.look(ctx, conn, new(pulse))
}

// Wrap is what each call does to its error.
func Wrap(err error) error { return wrap(err) }

// ClaimReads returns how many rows of ready the statement of a claim reads that takes up
// to most jobs. It takes none.
func (s *Storage) ClaimReads(ctx context.Context, most int) (n int, err error) {
	a := s.asking(time.Now(), &storage.Claim{}, most, false)
	claim := a.claiming(false, nil)
	errUndo := errors.New("undo")
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql[tuneSQL]); err != nil {
			return err
		}
		var plans []struct{ Plan scanned }
		err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+claim.sql, claim.args...).Scan(&plans)
		if err != nil {
			return err
		}
		n = plans[0].Plan.rows()
		return errUndo
	})
	if err == errUndo {
		err = nil
	}
	return n, err
}

// scanned is a node of a plan that was executed.
type scanned struct {
	Relation string `json:"Relation Name"`
	Rows     int    `json:"Actual Rows"`
	Removed  int    `json:"Rows Removed by Filter"`
	Loops    int    `json:"Actual Loops"`
	Plans    []scanned
}

func (p *scanned) rows() (n int) {
	if p.Relation == "ready" {
		n = (p.Rows + p.Removed) * p.Loops
	}
	for i := range p.Plans {
		n += p.Plans[i].rows()
	}
	return n
}
