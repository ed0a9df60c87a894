package postgres

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// WithPatience sets how long a statement may take.
func WithPatience(d time.Duration) Option { return func(c *config) { c.patience = d } }

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
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.migrateIn(ctx, tx, all[:version]) })
}

// StatementNames returns the names of the statements in a schema, by their text. The
// variants of a statement share a name.
func StatementNames(schema string) map[string]string {
	names := make(map[string]string)
	all := reflect.ValueOf(*newStatements(schema))
	for i := range all.NumField() {
		switch v := all.Field(i); v.Kind() {
		case reflect.String:
			names[v.String()] = all.Type().Field(i).Name
		case reflect.Struct:
			for k := range v.NumField() {
				names[v.Field(k).String()] = all.Type().Field(i).Name + []string{"In", "All", "Around"}[k]
			}
		default:
			for k := range v.Len() {
				names[v.Index(k).String()] = all.Type().Field(i).Name
			}
		}
	}
	return names
}

// Replace replaces a part of a statement, "" for all of it. Calls that make the statement
// are still to come.
func (s *Storage) Replace(statement, part, by string) error {
	all := reflect.ValueOf(s.sql).Elem()
	text := all.FieldByName(statement)
	for i, variant := range []string{"In", "All", "Around"} {
		of, is := strings.CutSuffix(statement, variant)
		if is && all.FieldByName(of).Kind() == reflect.Struct {
			text = all.FieldByName(of).Field(i)
		}
	}
	sql := (*string)(text.Addr().UnsafePointer())
	switch {
	case part == "":
		*sql = by
	case !strings.Contains(*sql, part):
		return fmt.Errorf("%s has no %q", statement, part)
	default:
		*sql = strings.ReplaceAll(*sql, part, by)
	}
	return nil
}

// ForgetIdle forgets keys as a claim does that adds one.
func (s *Storage) ForgetIdle(ctx context.Context, now time.Time) error {
	return s.forgetIdle(ctx, rows.Nanos(now))
}

// CompactServed forgets rounds as a look does.
func (s *Storage) CompactServed(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, s.sql.compactServed)
	return err
}

// Tune is the statement with the settings for the planner.
func (s *Storage) Tune() string { return s.sql.tune }

// Plans returns the plan of each statement that has to stay quick however many jobs are
// stored, as the storage has it planned.
func (s *Storage) Plans(ctx context.Context) (map[string]string, error) {
	now := rows.Nanos(time.Now())
	ids := []string{"a", "b"}
	given := arguments(make([]written, 2))
	none := []string{}
	walk := []any{1, 1, 10, []int16{6, 7, 8}, false, []int16(nil), none, none, none, 9, 10, 1}
	looks := []any{now, 10, []string{"x"}, none, none, none, none}
	looks = looks[:len(looks):len(looks)]
	claim := append(looks, "w", givenLease(0))
	claim = claim[:len(claim):len(claim)]
	judged := append(claim, 1)
	judged = judged[:len(judged):len(judged)]
	claimNew := freshArguments(make([]written, 2))
	claimNew = append(claimNew, []int64{now, now}, "w")
	claimNew = claimNew[:len(claimNew):len(claimNew)]
	plans := make(map[string]string)
	for name, st := range map[string]struct {
		sql  string
		args []any
	}{
		"get":              {s.sql.get, []any{"a"}},
		"claim":            {s.sql.claim.in, append(claim, []string{"q", "r"})},
		"claim all":        {s.sql.claim.all, claim},
		"claim around":     {s.sql.claim.around, claim},
		"claim these":      {s.sql.claimThese, []any{now, "w", givenLease(0), []int64{1, 2}}},
		"claim judged":     {s.sql.claimJudged.in, append(judged, []string{"q", "r"})},
		"ahead judged all": {s.sql.aheadJudged.all, judged},
		"lock heads":       {s.sql.lockHeads.in, append(looks, []string{"q", "r"})},
		"lock heads all":   {s.sql.lockHeads.all, looks},
		"pick heads all":   {s.sql.pickHeads.all, looks},
		"judge limits":     {s.sql.judgeLimits, []any{now}},
		"promote":          {s.sql.promote, []any{1}},
		"closed":           {s.sql.closed, nil},
		"shut lanes":       {s.sql.shutLanes, []any{ids, ids}},
		"set opens":        {s.sql.setOpens, []any{ids, []int64{now, now}}},
		"held":             {s.sql.held, []any{now}},
		"lock limits":      {s.sql.lockLimits, []any{[]string{"key", "queue"}, ids, now}},
		"insert claim":     {s.sql.insertClaimIn, append(claimNew, ids, [][]byte{nil, nil}, givenLease(0))},
		"insert claim all": {s.sql.insertClaimAll, append(claimNew, none, [][]byte{nil, nil}, givenLease(0))},
		"logs":             {s.sql.logs, []any{"a"}},
		"add logs":         {s.sql.addLogs, []any{ids, []int64{1, 1}, [][]byte{nil, nil}}},
		"trim logs":        {s.sql.trimLogs, []any{ids, 10}},
		"rest rounds":      {s.sql.restRounds, []any{ids, []int32{1, 2}}},
		"compact served":   {s.sql.compactServed, nil},
		"counters":         {s.sql.counters, []any{[]string{"key", "queue"}, ids}},
		"start":            {s.sql.start, []any{"key", "a", 1}},
		"set started":      {s.sql.setStarted, []any{"key", "a", "", 1, 1, now}},
		"trim starts":      {s.sql.trimStarts, []any{"key", "a", 1}},
		"take start":       {s.sql.takeStart, []any{"key", "a", now}},
		"keep starts":      {s.sql.keepStarts, []any{[]string{"key", "queue"}, ids}},
		"idle limits":      {s.sql.idleLimits, []any{now}},
		"forget limits":    {s.sql.forgetLimits, []any{ids, now}},
		"waiting of key":   {s.sql.waitingOfKey, []any{"a", now}},
		"waiting of queue": {s.sql.waitingOfQueue, []any{"a", now}},
		"next limit":       {s.sql.nextLimit, []any{"key", "a"}},
		"settle attempt":   {s.sql.settleAttempt, attemptArguments(make([]written, 2), []int64{1, 1})},
		"end attempt":      {s.sql.endAttempt, attemptArguments(make([]written, 2), []int64{1, 1})},
		"complete":         {s.sql.complete, completionArguments(make([]written, 2))},
		"complete step":    {s.sql.completeStep, completionArguments(make([]written, 2))},
		"end step":         {s.sql.endStep, attemptArguments(make([]written, 2), []int64{1, 1})},
		"settle step":      {s.sql.settleStep, attemptArguments(make([]written, 2), []int64{1, 1})},
		"ahead":            {s.sql.ahead.in, append(claim, []string{"q", "r"})},
		"ahead all":        {s.sql.ahead.all, claim},
		"ahead around":     {s.sql.ahead.around, claim},
		"locked ids":       {s.sql.lockedIDs, []any{ids}},
		"settle all":       {s.sql.settleAll, append(given[:len(given):len(given)], []int64{1, 1})},
		"take edges":       {s.sql.takeEdges, []any{[]int64{1, 2}}},
		"still waiting":    {s.sql.stillWaiting, []any{[]int64{1, 2}}},
		"waiting jobs":     {s.sql.waitingJobs, []any{[]int64{1, 2}}},
		"set documents":    {s.sql.setDocuments, []any{[]int64{1, 2}, [][]byte{nil, nil}}},
		"set depends":      {s.sql.setDepends, []any{[]int64{1, 2}, [][]byte{nil, nil}}},
		"enter lines":      {s.sql.enterLines, []any{ids, ids, [][]byte{nil, nil}}},
		"first in line":    {s.sql.firstInLine, []any{ids, []int64{1, 2}}},
		"leave line":       {s.sql.leaveLine, []any{[]int64{1, 2}}},
		"give turns":       {s.sql.giveTurns, []any{[]int64{1, 2}, [][]byte{nil, nil}, []int64{1, 2}}},
		"set awaited":      {s.sql.setAwaited, []any{[]int64{1, 2}}},
		"lock changed":     {s.sql.lockChanged, []any{ids}},
		"lock known":       {s.sql.lockKnown, []any{ids}},
		"heads":            {s.sql.heads, []any{ids}},
		"versions":         {s.sql.versions, []any{ids}},
		"extend": {
			s.sql.extend, []any{ids, []int64{1, 1}, []float64{0, 0}, [][]byte{nil, nil}, now, []int64{1, 1}},
		},
		"due":     {s.sql.due, []any{now, 10, false}},
		"next":    {s.sql.nextWake, nil},
		"peers":   {s.sql.peers, []any{ids}},
		"locked":  {s.sql.locked, []any{[]int64{1, 2}}},
		"kept":    {s.sql.keptUntil, []any{now, 10}},
		"keep on": {s.sql.keepOn, []any{now, []int64{1, 2}, ids, []int64{1, 2}}},
		"release": {s.sql.release, []any{now, []int64{1, 2}}},
		"prune":   {s.sql.prune, []any{[]int16{6, 7, 8}, false, now, 10, 10, now}},
		"remove":  {s.sql.remove, []any{ids}},
		"by seq":  {s.sql.bySeq, []any{[]int64{1, 2}}},
		"oldest":  {s.sql.walkOldest[0], walk}, "oldest back": {s.sql.walkOldest[1], walk},
		"newest": {s.sql.walkNewest[0], walk}, "newest back": {s.sql.walkNewest[1], walk},
		"active": {s.sql.walkActive[0], walk}, "active back": {s.sql.walkActive[1], walk},
		"active newest":      {s.sql.walkActiveNewest[0], walk},
		"active newest back": {s.sql.walkActiveNewest[1], walk},
		"dead":               {s.sql.walkDead[0], walk}, "dead back": {s.sql.walkDead[1], walk},
		"last dead": {s.sql.walkLastDead[0], walk}, "last dead back": {s.sql.walkLastDead[1], walk},
		"wait": {s.sql.walkDue[0], walk}, "wait back": {s.sql.walkDue[1], walk},
		"ready": {s.sql.walkReady[0], walk}, "ready back": {s.sql.walkReady[1], walk},
		"finished": {s.sql.walkFinished[0], walk}, "finished back": {s.sql.walkFinished[1], walk},
	} {
		var line string
		var b strings.Builder
		err := tuned{s}.query(ctx, "EXPLAIN "+st.sql, st.args, func(result rowSet) error {
			return each([]any{&line}, func() { fmt.Fprintln(&b, line) })(result)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		plans[name] = b.String()
	}
	return plans, nil
}

// Look is what the listener does now and then, with a connection.
func (s *Storage) Look(ctx context.Context, conn *pgx.Conn) error { return s.look(ctx, conn, "") }

// Wrap is what each call does to its error.
func Wrap(err error) error { return wrap(err) }

// ClaimReads returns how many rows of ready the statement of a claim reads that takes up
// to most jobs. It takes none.
func (s *Storage) ClaimReads(ctx context.Context, most int) (n int, err error) {
	a := s.asking(time.Now(), &storage.Claim{}, most, false)
	sql, args := a.claiming(false)
	errUndo := errors.New("undo")
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.tune); err != nil {
			return err
		}
		var plans []struct{ Plan scanned }
		err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+sql, args...).Scan(&plans)
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
