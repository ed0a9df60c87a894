package storagetest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ojsengine/ojs/internal/test/fields"
	"github.com/ojsengine/ojs/storage"
)

// violation is a history that no order explains, shortened.
type violation struct {
	*history
	effects []*effect
}

// shorten cuts a history that is not linearizable to what shows it.
//
//  1. It ends the history at the first return of a call at which it is not linearizable.
//     Calls under way then may have had any outcome.
//  2. It leaves out calls that have changed nothing, as long as the rest is not
//     linearizable: an order that explains all calls explains all others.
//  3. It leaves out jobs that share no call with others, in the same way. A call that
//     does not tell of a job answers the same if the job never was, unless it counts.
func (h *history) shorten() *violation {
	all := h.effects()
	wrong := func(list []*effect) bool { return h.check(list) == porcupine.Illegal }
	var ends []int64
	for _, c := range h.calls {
		ends = append(ends, c.ended)
	}
	slices.Sort(ends)
	until := func(end int64) (list []*effect) {
		for _, e := range all {
			if e.began < end {
				free := e.free || e.ended > end
				list = append(list, &effect{historyCall: e.historyCall, part: e.part, free: free})
			}
		}
		return list
	}
	list := all
	if n := sort.Search(len(ends), func(i int) bool { return wrong(until(ends[i])) }); n < len(ends) {
		list = until(ends[n])
	}
	try := func(leave func(e *effect) bool) {
		if rest := slices.DeleteFunc(slices.Clone(list), leave); len(rest) < len(list) && wrong(rest) {
			list = rest
		}
	}
	for _, e := range slices.Backward(slices.Clone(list)) {
		if e.op.reads() || !e.free && e.changedNothing() {
			try(func(other *effect) bool { return other == e })
		}
	}
	for _, group := range groups(list) {
		if !slices.ContainsFunc(list, func(e *effect) bool {
			return e.countsJobs() && !e.free && !group[e]
		}) {
			try(func(e *effect) bool { return group[e] })
		}
	}
	return &violation{h, list}
}

// changedNothing reports whether an effect has changed nothing, by its answer.
func (e *effect) changedNothing() bool {
	a := &e.answer
	if a.Err != "" {
		return true
	}
	switch op := e.op.(type) {
	case *claimCall, *dueCall:
		return len(a.Records) == 0
	case *settleCall:
		return e.part < len(a.Settled) && a.Settled[e.part].Err != ""
	case *extendCall:
		return len(a.IDs) == len(op.xs)
	case *deleteCall, *unclaimCall, *deleteCronCall:
		return a.N == 0
	case *pruneCall:
		return len(a.IDs) == 0
	case *setCronsCall:
		return !slices.ContainsFunc(a.Versions, func(v uint64) bool { return v > 0 })
	}
	return false
}

// countsJobs reports whether the answer of an effect depends on jobs that it does not
// tell of.
func (e *effect) countsJobs() bool {
	switch op := e.op.(type) {
	case *countsCall, *pruneCall, *dueCall:
		return true
	case *insertCall:
		return op.bounded()
	}
	return false
}

// tells returns what an effect is about: jobs, states of queues, or recurring entries.
func (e *effect) tells(states bool) (about []string) {
	records := func(list []storage.Record) { about = append(about, ids(list)...) }
	records(e.answer.Records)
	records(e.answer.Moved)
	inserts := func(batch []storage.Insert) {
		for i := range batch {
			about = append(append(about, batch[i].Record.ID), batch[i].DependsOn...)
			if key := batch[i].OrderingKey; key != "" {
				about = append(about, "line "+key)
			}
		}
	}
	for _, s := range e.answer.Settled {
		records(s.Moved)
	}
	about = append(about, e.answer.IDs...)
	switch op := e.op.(type) {
	case *insertCall:
		inserts(op.batch)
		for _, in := range e.answer.Inserted {
			records(in.Replaced)
			records(in.Dropped)
			records(in.Moved)
			if in.Existing != nil {
				about = append(about, in.Existing.ID)
			}
		}
	case *settleCall:
		about = append(about, op.changes[e.part].Record.ID)
		inserts(op.changes[e.part].Then)
	case *stepCall:
		records(op.to)
	case *extendCall:
		for _, x := range op.xs {
			about = append(about, x.ID)
		}
	case *unclaimCall:
		for _, x := range op.held {
			about = append(about, x.ID)
		}
	case *getCall:
		about = append(about, op.id)
	case *deleteCall:
		about = append(about, op.ids...)
	case *cancelAllCall:
		about = append(about, op.ids...)
	case *reviveCall:
		inserts(op.batch)
	case *setCronsCall, *deleteCronCall, *cronsCall, *dueCronsCall:
		return []string{"recurring entries"}
	case *queueStateCall, *queueStatesCall:
		return []string{"states of queues"}
	}
	switch e.op.(type) {
	case *insertCall, *claimCall, *stepCall:
		if states {
			about = append(about, "states of queues")
		}
	}
	return about
}

// groups returns the effects that are about the same, or about what others of the same
// group are about.
func groups(list []*effect) (out []map[*effect]bool) {
	states := slices.ContainsFunc(list, func(e *effect) bool {
		_, is := e.op.(*queueStateCall)
		return is
	})
	about := make([]map[string]bool, 0)
	for _, e := range list {
		mine, group := make(map[string]bool), map[*effect]bool{e: true}
		for _, what := range e.tells(states) {
			mine[what] = true
		}
		for i := 0; i < len(out); {
			shares := false
			for what := range mine {
				shares = shares || about[i][what]
			}
			if !shares {
				i++
				continue
			}
			maps.Copy(mine, about[i])
			maps.Copy(group, out[i])
			about, out = slices.Delete(about, i, i+1), slices.Delete(out, i, i+1)
		}
		about, out = append(about, mine), append(out, group)
	}
	return out
}

// String prints the history, one call a line with when it began and ended, and how far an
// order explains it.
func (v *violation) String() string {
	var b strings.Builder
	ticks := v.ticks()
	fmt.Fprintf(&b, "theme: %s\n", v.theme.name)
	for i, e := range v.effects {
		end := strconv.Itoa(ticks[e.ended])
		if e.free {
			end = ""
		}
		fmt.Fprintf(&b, "%2d. client %d  %3d-%-3s %s\n", i+1, e.client+1, ticks[e.began], end, e)
	}
	order, m := v.longest()
	var names []string
	for _, e := range order {
		names = append(names, strconv.Itoa(slices.Index(v.effects, e)+1))
	}
	fmt.Fprintf(&b, "The longest order that explains its calls is %s. After it:\n", strings.Join(names, ", "))
	for _, e := range v.candidates(order) {
		got, want, _ := e.step(m)
		diff := strings.Join(fields.Diff(got, want), "\n    ")
		fmt.Fprintf(&b, "%2d. %s\n", slices.Index(v.effects, e)+1, readable(diff))
	}
	return b.String()
}

// ticks numbers the beginnings and ends that are left.
func (v *violation) ticks() map[int64]int {
	var all []int64
	for _, e := range v.effects {
		all = append(all, e.began)
		if !e.free {
			all = append(all, e.ended)
		}
	}
	slices.Sort(all)
	numbers := make(map[int64]int)
	for i, t := range slices.Compact(all) {
		numbers[t] = i + 1
	}
	return numbers
}

// longest returns the longest order in which calls are explained, and the model after it.
// Of several it is the one that begins with the calls that began first.
func (v *violation) longest() ([]*effect, *model) {
	_, info := v.verbose()
	var orders [][]*effect
	for _, lists := range info.PartialLinearizationsOperations() {
		for _, list := range lists {
			var order []*effect
			for _, op := range list {
				order = append(order, op.Input.(input).effect)
			}
			orders = append(orders, order)
		}
	}
	began := func(a, b *effect) int { return slices.Index(v.effects, a) - slices.Index(v.effects, b) }
	order := slices.MinFunc(append(orders, nil), func(a, b []*effect) int {
		return cmp.Or(len(b)-len(a), slices.CompareFunc(a, b, began))
	})
	m := porcupineModel(v.byJob).Init().(*model)
	for _, e := range order {
		_, _, m = e.step(m)
	}
	return order, m
}

func (v *violation) verbose() (porcupine.CheckResult, porcupine.LinearizationInfo) {
	return porcupine.CheckOperationsVerbose(porcupineModel(v.byJob), operations(v.effects, v.byJob),
		checkTime)
}

// candidates returns the effects that could be next after an order: those that began
// before any other had to end.
func (v *violation) candidates(order []*effect) (next []*effect) {
	var left []*effect
	for _, e := range v.effects {
		if !slices.Contains(order, e) {
			left = append(left, e)
		}
	}
	for _, e := range left {
		before := func(other *effect) bool { return !other.free && other.ended < e.began }
		if !slices.ContainsFunc(left, before) {
			next = append(next, e)
		}
	}
	return next
}

// draw writes the history as a page for browsers.
func (v *violation) draw(t *testing.T) {
	path := filepath.Join(t.ArtifactDir(), "history.html")
	f, err := os.Create(path)
	if err == nil {
		err = v.page(f)
		if closing := f.Close(); err == nil {
			err = closing
		}
	}
	if err != nil {
		t.Errorf("the picture of the history: %v", err)
		return
	}
	t.Logf("the history as a picture: %s", path)
}

func (v *violation) page(w io.Writer) error {
	_, info := v.verbose()
	return porcupine.Visualize(porcupineModel(v.byJob), info, w)
}

// String is the effect as histories print it: what was asked and what was answered.
func (e *effect) String() string {
	s := e.op.String()
	if e.parts > 1 {
		s += fmt.Sprintf(" (part %d of %d)", e.part+1, e.parts)
	}
	if e.free {
		return s + " -> under way"
	}
	return s + " -> " + e.told()
}

// told is what matters of the answer of an effect.
func (e *effect) told() string {
	a := &e.answer
	if a.Err != "" {
		return a.Err
	}
	recs := a.Records
	if e.parts > 1 && len(recs) == e.parts {
		recs = recs[e.part : e.part+1]
	}
	var parts []string
	switch e.op.(type) {
	case *settleCall:
		if e.part < len(a.Settled) {
			parts = append(parts, a.Settled[e.part].String())
		}
	case *stepCall:
		for _, s := range a.Settled {
			parts = append(parts, s.String())
		}
	case *setCronsCall:
		for _, v := range a.Versions {
			parts = append(parts, versionText(v))
		}
	case *extendCall:
		parts = append(parts, "lost: "+orNone(jobNames(a.IDs)))
	case *pruneCall:
		parts = append(parts, orNone(jobNames(a.IDs))+fmt.Sprintf(", %d left", a.Left))
	case *deleteCall, *unclaimCall, *deleteCronCall:
		parts = append(parts, strconv.Itoa(a.N))
	case *countsCall:
		for _, c := range slices.SortedFunc(maps.Keys(a.Counts), func(a, b storage.Count) int {
			return strings.Compare(a.Queue+string(a.State), b.Queue+string(b.State))
		}) {
			parts = append(parts, fmt.Sprintf("%d %s in %s", c.N, c.State, c.Queue))
		}
	case *queueStateCall:
		parts = append(parts, "it was "+string(a.State))
	case *queueStatesCall:
		for _, q := range slices.Sorted(maps.Keys(a.States)) {
			parts = append(parts, q+" "+string(a.States[q]))
		}
	case *cronsCall, *dueCronsCall:
		for _, c := range a.Crons {
			parts = append(parts, cronText(&c))
		}
	}
	for i, in := range a.Inserted {
		id := jobName(e.op.(*insertCall).batch[i].Record.ID)
		if in.Version > 0 {
			parts = append(parts, fmt.Sprintf("%s version %d", id, in.Version))
		}
		if in.Existing != nil {
			parts = append(parts, "there is "+recordText(in.Existing))
		}
		for k := range in.Replaced {
			parts = append(parts, "replaced "+recordText(&in.Replaced[k]))
		}
		for k := range in.Dropped {
			parts = append(parts, "dropped "+recordText(&in.Dropped[k]))
		}
	}
	for i := range recs {
		parts = append(parts, recordText(&recs[i]))
	}
	if !a.Next.IsZero() {
		parts = append(parts, "next at "+at(a.Next))
	}
	return orNone(parts)
}

func (s settled) String() string {
	if s.Err != "" {
		return s.Err
	}
	return versionText(s.Version)
}

func versionText(v uint64) string {
	if v == 0 {
		return "not stored"
	}
	return fmt.Sprintf("version %d", v)
}

func recordText(r *storage.Record) string {
	s := fmt.Sprintf("%s %s version %d", jobName(r.ID), r.State, r.Version)
	if !r.LeaseUntil.IsZero() {
		s += " until " + at(r.LeaseUntil)
	}
	return s
}

func cronText(c *storage.Cron) string {
	s := fmt.Sprintf("%s version %d with %d runs", c.Name, c.Version, c.Runs)
	if !c.NextRun.IsZero() {
		s += ", next at " + at(c.NextRun)
	}
	return s
}

func orNone(parts []string) string {
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// String shows a model as the picture of a history does.
func (m *model) String() string {
	var parts []string
	for _, j := range m.ref.jobs {
		parts = append(parts, recordText(&j.rec))
	}
	for _, name := range slices.Sorted(maps.Keys(m.ref.of(storage.KindCron))) {
		parts = append(parts, fmt.Sprintf("%s version %d", name, m.ref.of(storage.KindCron)[name].Version))
	}
	for _, q := range slices.Sorted(maps.Keys(m.ref.states)) {
		parts = append(parts, q+" "+string(m.ref.states[q]))
	}
	return orNone(parts)
}

// idOf makes an id of a number.
func idOf(n int) string { return fmt.Sprintf(idFormat, n) }

// jobName is a job's number in its history.
func jobName(id string) string {
	n, err := strconv.ParseUint(id[max(0, len(id)-12):], 16, 64)
	if err != nil {
		return "job " + id
	}
	return fmt.Sprintf("job %d", n%jobIDs)
}

func jobNames(list []string) []string {
	out := make([]string, len(list))
	for i, id := range list {
		out[i] = jobName(id)
	}
	return out
}

var (
	idPattern   = regexp.MustCompile(`"?01890a5d-ac96-774b-bcce-[0-9a-f]{12}"?`)
	timePattern = regexp.MustCompile(`2026-\d\d-\d\dT[0-9:.]+Z`)
)

// readable replaces ids and times by what histories print.
func readable(s string) string {
	s = idPattern.ReplaceAllStringFunc(s, func(id string) string { return jobName(strings.Trim(id, `"`)) })
	return timePattern.ReplaceAllStringFunc(s, func(text string) string {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return text
		}
		return at(t)
	})
}

// at is a time as histories print it.
func at(t time.Time) string { return t.Sub(epoch).String() }
