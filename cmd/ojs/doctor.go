package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

type doctorVerb struct{}

func (doctorVerb) Help() string {
	return `It only reads. The exit code is 5 if it finds a fault.`
}

// finding is a fault with its fix.
type finding struct {
	Check string `json:"check"`
	Fault string `json:"fault"`
	Fix   string `json:"fix"`
}

// errCannotAsk says that a check is not for the storage.
var errCannotAsk = errors.New("not on this storage")

// cannotTell is why a check finds nothing, and does not say that all is well.
type cannotTell string

func (c cannotTell) Error() string { return string(c) }

// errNoEngine says that a check needs an engine that reports: the check of workers tells
// of it.
const errNoEngine = cannotTell("no engine reports")

// check looks for faults of a kind. sound is what it says if there are none.
type check struct {
	name  string
	sound string
	find  func(d *doctor) ([]finding, error)
}

// checks are in the order in which a fault explains those after it.
var checks = []check{
	{"connections", "there is room for more", (*doctor).connections},
	{"server", "it takes changes", (*doctor).server},
	{"clock", "that of this machine and that of the storage agree", (*doctor).clock},
	{"replica identity", "every table can be in a publication", (*doctor).replicaIdentity},
	{"bloat", "few rows are dead", (*doctor).bloat},
	{"transactions", "none is old", (*doctor).transactions},
	{"quarantine", "every record decodes", (*doctor).quarantine},
	{"pauses", "nothing that has jobs is paused", (*doctor).pauses},
	{"workers", "no job lacks an engine that reports", (*doctor).workers},
	{"queues", "each queue with jobs has an engine", (*doctor).queues},
	{"types", "each type with jobs has a handler", (*doctor).types},
	{"claims", "no lease is over", (*doctor).claims},
	{"due jobs", "none is late", (*doctor).dueJobs},
	{"recurring jobs", "none is late", (*doctor).recurring},
	{"limits", "none keeps all of its jobs from starting", (*doctor).limits},
}

// late is how long something may be due before it is a fault.
const late = time.Minute

// doctorBounds are where something is a fault.
type doctorBounds struct {
	connections float64       // the share in use
	dead        int           // rows of a table
	spare       int64         // bytes of a SQLite file or its log that it does not need
	transaction time.Duration // its age
}

// usualBounds are the bounds of doctor. Tests change them.
var usualBounds = doctorBounds{0.8, 100_000, 256 << 20, 10 * time.Minute}

// doctor is a run of the checks.
type doctor struct {
	*call
	bounds doctorBounds
	op     *operate.Operator
	jobs   *inspect.Jobs
	now    time.Time
	nodes  []inspect.Node // that report: the storage forgets others
	rows   []storage.Count
	file   *sqliteFile
	pg     *pgDoctor
}

// Run looks for faults.
func (doctorVerb) Run(c *call) error {
	status, err := c.schemaStatus()
	if err != nil {
		return err
	}
	var faults []finding
	var unasked []string
	results := [][]cell{}
	add := func(name, sound string, found []finding, err error) {
		switch {
		case errors.Is(err, errCannotAsk):
			unasked = append(unasked, name)
		case errors.As(err, new(cannotTell)):
			results = append(results, []cell{tinted(dim, "-"), of(name), tinted(dim, err.Error())})
		case err != nil:
			found = []finding{{name, "it could not be looked at: " + plainError(err), fixOf(err)}}
			fallthrough
		case len(found) > 0:
			for _, f := range found {
				faults = append(faults, f)
				results = append(results, []cell{tinted(red, "fault"), of(name), of(f.Fault)})
			}
		default:
			results = append(results, []cell{tinted(green, "ok"), of(name), of(sound)})
		}
	}
	if status.Status != "current" {
		add("schema", "", []finding{{"schema", status.Text, "ojs migrate up"}}, nil)
	} else {
		add("schema", status.Text, nil, nil)
		d, err := c.doctor()
		if err != nil {
			return err
		}
		defer d.close()
		for _, ch := range checks {
			found, err := ch.find(d)
			if err := c.ctx.Err(); err != nil {
				return err
			}
			for i := range found {
				found[i].Check = ch.name
			}
			add(ch.name, ch.sound, found, err)
		}
	}
	if len(unasked) > 0 {
		text := "not on this storage: " + strings.Join(unasked, ", ")
		results = append(results, []cell{tinted(dim, "-"), tinted(dim, "others"), tinted(dim, text)})
	}
	if len(faults) > 0 {
		c.code = exitFindings
	}
	if !c.style.isTable() {
		return show(c, listing[finding]{id: func(f finding) string { return f.Check }}, all(faults), nil)
	}
	return write(c.out, c.doctorLines(results, faults)...)
}

func (c *call) doctorLines(results [][]cell, faults []finding) (lines []string) {
	at := 0
	for _, r := range results {
		head := c.style.paint(r[0].tint, pad(r[0].text, 5, false)) + "  " + pad(r[1].text, 16, false) + "  "
		for _, part := range c.style.wrap(r[2].text, 25) {
			lines = append(lines, head+c.style.paint(r[2].tint, part))
			head = strings.Repeat(" ", 25)
		}
		if r[0].text == "fault" {
			head = strings.Repeat(" ", 25) + "fix: "
			for _, part := range c.style.wrap(clean(faults[at].Fix), 30) {
				lines = append(lines, head+part)
				head = strings.Repeat(" ", 30)
			}
			at++
		}
	}
	if at == 0 {
		return append(lines, "", "No faults.")
	}
	return append(lines, "", counted(at, "fault")+".")
}

// doctor reads what several checks read.
func (c *call) doctor() (*doctor, error) {
	op, err := c.operator()
	if err != nil {
		return nil, err
	}
	d := &doctor{call: c, bounds: usualBounds, op: op, jobs: op.Jobs().Jobs, now: c.now()}
	if d.nodes, err = d.jobs.Nodes(c.ctx); err != nil {
		return nil, err
	}
	if d.rows, err = c.opened.Counts(c.ctx); err != nil {
		return nil, err
	}
	k, path, err := c.address()
	switch {
	case err != nil:
		return nil, err
	case k == onSQLite:
		d.file = &sqliteFile{path}
	case k == onPostgres:
		d.pg, err = connectDoctor(c)
	}
	return d, err
}

func (d *doctor) close() {
	if d.pg != nil {
		d.pg.pool.Close()
	}
}

func (d *doctor) clock() ([]finding, error) {
	clocked, ok := storage.As[storage.Clocked](d.opened)
	if !ok {
		return nil, errCannotAsk
	}
	if off := clocked.ClockOffset(); off.Abs() > time.Second {
		return []finding{{Fault: fmt.Sprintf("the clock of the storage is %s away from that of this machine",
			span(off)),
			Fix: "synchronise both by NTP"}}, nil
	}
	return nil, nil
}

func (d *doctor) quarantine() ([]finding, error) {
	q, ok := storage.As[storage.Quarantiner](d.opened)
	if !ok {
		return nil, errCannotAsk
	}
	n, err := q.CountQuarantined(d.ctx)
	if err != nil || n == 0 {
		return nil, err
	}
	return []finding{{Fault: counted(n, "record") + " cannot be read and take part in nothing",
		Fix: "ojs quarantine, and correct and release, or delete each"}}, nil
}

func (d *doctor) pauses() (found []finding, err error) {
	pauses, err := d.jobs.Pauses(d.ctx)
	if err != nil {
		return nil, err
	}
	waiting := d.waiting(func(c storage.Count) string { return c.Type })
	for _, p := range pauses {
		if p.OfAll() {
			found = append(found, finding{Fault: "everything is paused since " + moment(p.At),
				Fix: "ojs queues resume --all"})
		} else if n := waiting[p.Type]; n > 0 {
			found = append(found, finding{Fault: fmt.Sprintf("type %s is paused, and %s", p.Type,
				areWaiting(n)),
				Fix: "ojs queues resume --type " + p.Type})
		}
	}
	states, err := d.opened.QueueStates(d.ctx)
	if err != nil {
		return nil, err
	}
	waiting = d.waiting(func(c storage.Count) string { return c.Queue })
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if n := waiting[name]; states[name] == ojs.QueuePaused && n > 0 {
			found = append(found, finding{Fault: fmt.Sprintf("queue %s is paused, and %s", name,
				areWaiting(n)),
				Fix: "ojs queues resume " + name})
		}
	}
	return found, nil
}

func areWaiting(n int) string {
	if n == 1 {
		return "1 job waits"
	}
	return number(n) + " jobs wait"
}

// waiting counts the available jobs by queue or type.
func (d *doctor) waiting(by func(storage.Count) string) map[string]int {
	n := make(map[string]int)
	for _, c := range d.rows {
		if c.State == ojs.StateAvailable {
			n[by(c)] += c.N
		}
	}
	return n
}

func (d *doctor) workers() (found []finding, err error) {
	n := 0
	for _, c := range d.rows {
		if !c.State.Terminal() {
			n += c.N
		}
	}
	if len(d.nodes) == 0 && n > 0 {
		found = append(found, finding{Fault: "no engine reports, and " + counted(n,
			"job") + " have not ended",
			Fix: "start the program that runs the jobs, without engine.WithoutReports"})
	}
	workers, err := d.jobs.Workers(d.ctx)
	for _, w := range workers {
		if w.Silent > 0 && w.Jobs > 0 {
			found = append(found, finding{
				Fault: fmt.Sprintf("worker %s is silent for %s and holds %s", w.ID, span(w.Silent),
					counted(w.Jobs, "job")),
				Fix: "check its process; its jobs run again when their leases end"})
		}
	}
	return found, err
}

// queues finds queues whose jobs no engine takes.
func (d *doctor) queues() ([]finding, error) {
	return d.unserved(func(queue, jobType string, byQueue bool) (text, fix string) {
		if byQueue {
			return "", ""
		}
		return "no engine that reports takes jobs of queue " + queue,
			"let an engine work it, or: ojs move --queue NAME queue:" + queue
	})
}

// types finds types that no engine of their queue handles.
func (d *doctor) types() ([]finding, error) {
	return d.unserved(func(queue, jobType string, byQueue bool) (text, fix string) {
		fix = "deploy a program that handles it"
		handles := func(n inspect.Node) bool { return slices.Contains(n.Types, jobType) }
		switch {
		case !slices.ContainsFunc(d.nodes, handles):
			return "no engine that reports has a handler of type " + jobType, fix
		case byQueue:
			return "no engine that reports has a handler of type " + jobType +
				" and takes jobs of queue " + queue, fix
		}
		return "", "" // the check of queues tells of it
	})
}

// unserved calls say for each queue and type with available jobs that no engine takes,
// and finds what it says. Workers of other programs do not report: a job that has run
// lately shows that there is one.
func (d *doctor) unserved(
	say func(queue, jobType string, byQueue bool) (text, fix string),
) (found []finding, err error) {
	if len(d.nodes) == 0 && len(d.rows) > 0 {
		return nil, errNoEngine
	}
	waiting, fixes := make(map[string]int), make(map[string]string)
	for _, c := range d.rows {
		byQueue, byType, _ := served(d.nodes, c.Queue, c.Type)
		if c.State != ojs.StateAvailable || byType {
			continue
		}
		text, fix := say(c.Queue, c.Type, byQueue)
		runs, err := d.runs(c.Queue, c.Type)
		if err != nil {
			return nil, err
		}
		if text != "" && !runs {
			waiting[text] += c.N
			fixes[text] = fix
		}
	}
	for _, text := range slices.Sorted(maps.Keys(waiting)) {
		found = append(found, finding{Fault: text + ", and " + areWaiting(waiting[text]), Fix: fixes[text]})
	}
	return found, nil
}

// runs reports whether a job of a queue and type is active, or has ended lately.
func (d *doctor) runs(queue, jobType string) (bool, error) {
	for _, c := range d.rows {
		if c.Queue == queue && c.Type == jobType && c.State == ojs.StateActive {
			return true, nil
		}
	}
	f := inspect.Filter{Queues: []string{queue}, Types: []string{jobType}, Order: inspect.OrderFinished}
	page, err := d.jobs.Page(d.ctx, f, "", 1)
	return len(page.Jobs) > 0 && d.now.Sub(page.Jobs[0].StartedAt) < 10*time.Minute, err
}

// claims finds active jobs whose lease is over and that no engine has taken over.
func (d *doctor) claims() (found []finding, err error) {
	n, oldest := 0, d.now
	f := inspect.Filter{States: []ojs.State{ojs.StateActive}}
	for rec, err := range d.jobs.Records(d.ctx, f) {
		if err != nil {
			return nil, err
		}
		if d.now.Sub(rec.LeaseUntil) > late {
			n++
			if rec.LeaseUntil.Before(oldest) {
				oldest = rec.LeaseUntil
			}
		}
	}
	if n == 0 {
		return nil, nil
	}
	return []finding{{Fault: fmt.Sprintf("%s %s active and the lease is over, the longest for %s",
		counted(n, "job"), isAre(n),
		span(d.now.Sub(oldest))), Fix: "start an engine on the storage: it takes them over"}}, nil
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// dueJobs finds jobs whose time has come and that no engine has made available.
func (d *doctor) dueJobs() ([]finding, error) {
	f := inspect.Filter{States: []ojs.State{ojs.StateScheduled, ojs.StateRetryable}, Order: inspect.OrderDue}
	page, err := d.jobs.Page(d.ctx, f, "", 1)
	if err != nil || len(page.Jobs) == 0 {
		return nil, err
	}
	job := page.Jobs[0]
	at := job.ScheduledAt
	if job.State == ojs.StateRetryable {
		at = job.NextRetryAt
	}
	if d.now.Sub(at) <= late {
		return nil, nil
	}
	return []finding{{Fault: fmt.Sprintf("job %s was due %s ago", job.ID, span(d.now.Sub(at))),
		Fix: "start an engine on the storage: any one makes due jobs available"}}, nil
}

func (d *doctor) recurring() (found []finding, err error) {
	entries, err := d.cron()
	if err != nil {
		return nil, err
	}
	pauses, err := d.jobs.Pauses(d.ctx)
	if err != nil || slices.ContainsFunc(pauses, inspect.Pause.OfAll) {
		return nil, err
	}
	overdue, err := entries.Due(d.ctx, d.now.Add(-late))
	for i := range overdue {
		e := &overdue[i]
		found = append(found, finding{Fault: fmt.Sprintf("entry %s was due %s ago", e.Name,
			span(d.now.Sub(e.NextRun))),
			Fix: "start an engine on the storage: any one makes the runs"})
	}
	return found, err
}

func (d *doctor) limits() (found []finding, err error) {
	for _, kind := range []storage.LimitKind{storage.LimitQueue, storage.LimitType, storage.LimitKey} {
		limits, err := d.limitsOf(d.op, kind)
		if err != nil {
			return nil, err
		}
		for _, l := range limits {
			name := string(l.Kind) + "/" + l.Name
			switch {
			case l.Waiting == 0:
			case l.BlockedUntil.Sub(d.now) > late:
				found = append(found, finding{
					Fault: fmt.Sprintf("limit %s is blocked for %s, and %s", name,
						span(l.BlockedUntil.Sub(d.now)),
						areWaiting(l.Waiting)),
					Fix: "ojs limits block --until now " + name})
			case l.Bounds.Concurrency == ojs.NoneAtOnce:
				found = append(found, finding{Fault: fmt.Sprintf("limit %s lets none start, and %s", name,
					areWaiting(l.Waiting)),
					Fix: "ojs limits clear " + name})
			}
		}
	}
	return found, nil
}
