package workflow

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// drawn is a part with what it means, told without nodes.
type drawn struct {
	part Part
	// run runs the part on a model. started: all that comes before has succeeded.
	run func(m *model, started bool) (ok bool)
}

// undo is a step of a saga that may have to be undone.
type undo struct {
	step string
	ok   bool
}

// model knows which steps run, and which must have ended before a step does.
type model struct {
	fails map[string]bool // the steps whose handlers fail
	ran   map[string]bool
	all   []string // every step, in order
	after map[string][]string

	prefix string // of the names of steps
	undo   []undo // of the saga that runs
	undone bool   // of the saga that has ended last: all that had to be undone is
}

func (m *model) step(name string, started bool) bool {
	m.all = append(m.all, m.prefix+name)
	m.ran[m.prefix+name] = started
	return started && !m.fails[name]
}

// gen draws parts with steps named by a counter.
type gen struct {
	n    int
	saga SagaPolicy // of the innermost saga; "": none

	sagas, anyFailed bool // drawn

	adds map[string]Part // what steps add; nil: none does
}

func (g *gen) name() string {
	g.n++
	return fmt.Sprint("s", g.n)
}

// build returns the nodes of a workflow but for the record.
func (w *Workflow) build() ([]node, error) {
	b, err := w.builder()
	if err != nil {
		return nil, err
	}
	return b.nodes, nil
}

func some() ojs.Draft { return ojs.NewDraft("x", nil) }

func (g *gen) part(t *rapid.T, depth int) drawn {
	kinds := []string{"step", "chain", "group", "batch", "graph", "saga"}
	if g.saga != "" {
		kinds = append([]string{"undoable"}, kinds...)
	}
	if depth == 0 {
		kinds = kinds[:len(kinds)-5]
	} else if g.adds != nil {
		kinds = append(kinds, "adder")
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	if kind == "undoable" {
		name := g.name()
		return drawn{Undoable(name, some(), some()), func(m *model, started bool) bool {
			ok := m.step(name, started)
			m.undo = append(m.undo, undo{name, ok})
			return ok
		}}
	}
	if kind == "saga" {
		return g.drawSaga(t, depth)
	}
	if kind == "adder" {
		name, outer := g.name(), g.saga
		g.saga = ""
		d := g.part(t, depth-1)
		g.adds[name], g.saga = d.part, outer
		return drawn{Adder(name, some()), func(m *model, started bool) bool {
			ok := m.step(name, started)
			if !started { // it adds nothing
				return false
			}
			prefix := m.prefix
			m.prefix += name + "/"
			ok = d.run(m, true) && ok
			m.prefix = prefix
			return ok
		}}
	}
	if kind == "step" {
		name := g.name()
		return drawn{Step(name, some()), func(m *model, started bool) bool { return m.step(name, started) }}
	}
	if kind == "graph" {
		return g.graph(t)
	}
	var parts []Part
	var runs []func(*model, bool) bool
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		d := g.part(t, depth-1)
		parts, runs = append(parts, d.part), append(runs, d.run)
	}
	together := func(m *model, started bool) bool {
		ok := started
		for _, run := range runs {
			ok = run(m, started) && ok
		}
		return ok
	}
	switch kind {
	case "chain":
		return drawn{Chain(parts...), func(m *model, ok bool) bool {
			for _, run := range runs {
				ok = run(m, ok)
			}
			return ok
		}}
	case "group":
		return drawn{Group(parts...), together}
	}
	used := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, 7}).Draw(t, "callbacks")
	var callbacks []Callback
	names := make([]string, 3)
	for i, c := range []Callback{OnComplete(some()), OnSuccess(some()), OnFailure(some())} {
		if used&(1<<i) != 0 {
			names[i] = g.name()
			callbacks = append(callbacks, c.Named(names[i]))
		}
	}
	return drawn{Batch(Group(parts...), callbacks...), func(m *model, started bool) bool {
		first := len(m.all)
		good := together(m, started)
		members := slices.Clone(m.all[first:])
		call := func(i int, fires bool) (ok bool) {
			if names[i] == "" {
				return i != 2 || used&1 != 0 // a failure wants a callback
			}
			m.after[names[i]] = members
			ok = m.step(names[i], started && fires)
			return ok || !fires
		}
		complete, success, failure := call(0, true), call(1, good), call(2, !good)
		switch {
		case !started || !complete:
			return false
		case good:
			return success
		}
		return failure
	}}
}

func (g *gen) drawSaga(t *rapid.T, depth int) drawn {
	outer := g.saga
	g.saga = rapid.SampledFrom([]SagaPolicy{Compensate, RetryFirst, Skip}).Draw(t, "policy")
	policy := g.saga
	g.sagas = true
	var parts []Part
	var runs []func(*model, bool) bool
	for range rapid.IntRange(0, 3).Draw(t, "steps") {
		d := g.part(t, depth-1)
		parts, runs = append(parts, d.part), append(runs, d.run)
	}
	g.saga = outer
	return drawn{Saga(policy, parts...), func(m *model, started bool) bool {
		before := m.undo
		defer func() { m.undo = before }()
		m.undo = nil
		first, ok := len(m.all), started
		for _, run := range runs {
			ok = run(m, ok) || policy == Skip && started
		}
		if policy == Skip {
			return ok
		}
		ended := slices.Clone(m.all[first:])
		m.undone = started && !ok
		for _, u := range slices.Backward(m.undo) {
			name := "undo-" + u.step
			m.after[name] = slices.Clone(ended)
			if runs := m.undone && u.ok; !m.step(name, runs) && runs {
				m.undone = false
			} else if runs {
				ended = append(ended, name)
			}
		}
		return ok
	}}
}

// draw draws a part and which steps of it fail, and runs it on a model.
func (g *gen) draw(t *rapid.T) (d drawn, m *model, ok bool) {
	d = g.part(t, 3)
	m = &model{fails: map[string]bool{}, ran: map[string]bool{}, after: map[string][]string{}}
	for i := range g.n {
		for _, name := range []string{fmt.Sprint("s", i+1), fmt.Sprint("undo-s", i+1)} {
			if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
				m.fails[name] = true
			}
		}
	}
	return d, m, d.run(m, true)
}

func (g *gen) graph(t *rapid.T) drawn {
	n := rapid.IntRange(0, 5).Draw(t, "nodes")
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: g.name(), Job: some()}
		for k := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				nodes[i].After = append(nodes[i].After, nodes[k].Name)
			}
		}
		if len(nodes[i].After) > 0 {
			whens := []ojs.Condition{"", ojs.AllSucceeded, ojs.AnyFailed, ojs.AllEnded}
			nodes[i].When = rapid.SampledFrom(whens).Draw(t, "when")
			g.anyFailed = g.anyFailed || nodes[i].When == ojs.AnyFailed
		}
	}
	given := slices.Clone(nodes)
	rapid.Permutation(given).Draw(t, "order")
	return drawn{Graph(given...), func(m *model, started bool) bool {
		good := make(map[string]bool)
		ok := started
		for _, n := range nodes {
			all := true
			for _, name := range n.After {
				all = all && good[name]
			}
			runs := started
			switch n.When {
			case ojs.AllEnded:
			case ojs.AnyFailed:
				runs = started && !all
			default:
				runs = started && all
			}
			if n.When == ojs.AnyFailed || n.When == ojs.AllEnded {
				m.after[n.Name] = n.After
			}
			good[n.Name] = m.step(n.Name, runs)
			if n.When != ojs.AnyFailed {
				ok = ok && good[n.Name]
			}
		}
		return ok
	}}
}

// play runs nodes as a storage and engines would, in any order. It returns which steps
// ran, in order, and how every node ended: true for completed.
func play(t *rapid.T, nodes []node, m *model) (ran []string, good []bool) {
	ended := make([]bool, len(nodes))
	good = make([]bool, len(nodes))
	for left := len(nodes); left > 0; left-- {
		var moves []int
		for i := range nodes {
			if unfinished, failed := counts(&nodes[i], ended, good); !ended[i] &&
				(unfinished == 0 || nodes[i].when == ojs.AllSucceeded && failed > 0) {
				moves = append(moves, i)
			}
		}
		if len(moves) == 0 {
			t.Fatalf("nothing moves, and %d nodes have not ended", left)
		}
		i := rapid.SampledFrom(moves).Draw(t, "moves")
		n := &nodes[i]
		_, failed := counts(n, ended, good)
		ended[i] = true
		switch n.when {
		case ojs.AllSucceeded:
			good[i] = failed == 0
		case ojs.AnyFailed:
			good[i] = failed > 0
		case ojs.AllEnded:
			good[i] = true
		}
		if !n.join() && good[i] {
			for _, before := range m.after[n.name] {
				k := slices.IndexFunc(nodes, func(o node) bool { return o.name == before })
				if !ended[k] {
					t.Fatalf("%s runs before %s has ended", n.name, before)
				}
			}
			ran = append(ran, n.name)
			good[i] = !m.fails[n.name]
		}
	}
	return ran, good
}

func counts(n *node, ended, good []bool) (unfinished, failed int) {
	for _, k := range n.after {
		switch {
		case !ended[k]:
			unfinished++
		case !good[k]:
			failed++
		}
	}
	return unfinished, failed
}

// W030 W031 W032 W034 W035 W062 W063: of any shape, with any steps failing, exactly the
// steps run that must, in an order that is allowed, and the workflow ends as it must.
func TestNodesMeanTheShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g gen
		d, m, want := g.draw(t)
		nodes, err := New("", d.part).build()
		if err != nil {
			t.Fatal(err)
		}
		ran, good := play(t, nodes, m)
		for _, name := range m.all {
			if slices.Contains(ran, name) != m.ran[name] {
				t.Errorf("%s: ran %v, want %v", name, !m.ran[name], m.ran[name])
			}
		}
		if len(ran) > len(m.all) || good[len(good)-1] != want {
			t.Errorf("succeeded %v, want %v", good[len(good)-1], want)
		}
	})
}

// A thousand steps before a thousand others are 2,000 edges.
func TestEdgesGrowWithTheSteps(t *testing.T) {
	many := func() Part {
		parts := make([]Part, 1000)
		for i := range parts {
			parts[i] = Step("", some())
		}
		return Group(parts...)
	}
	nodes, err := New("", Chain(many(), many(), Batch(many(), OnComplete(some())))).build()
	if err != nil {
		t.Fatal(err)
	}
	edges := 0
	for _, n := range nodes {
		edges += len(n.after)
	}
	if edges > 7_100 {
		t.Errorf("%d edges", edges)
	}
}

// W005: each shape nests in each, three levels deep.
func TestShapesNest(t *testing.T) {
	n := 0
	leaf := func() Part { return Step("", some()) }
	name := func() string { n++; return fmt.Sprint("n", n) }
	shapes := map[string]func(Part) Part{
		"chain": func(p Part) Part { return Chain(leaf(), p) },
		"group": func(p Part) Part { return Group(leaf(), p) },
		"batch": func(p Part) Part { return Batch(p, OnComplete(some()).Named(name())) },
		"saga":  func(p Part) Part { return Saga(Compensate, Undoable(name(), some(), some()), p) },
	}
	for outer, a := range shapes {
		for middle, b := range shapes {
			for inner, c := range shapes {
				graph := Graph(Node{Name: name(), Job: some()})
				if _, err := New("", a(b(c(graph)))).build(); err != nil {
					t.Errorf("a graph in a %s in a %s in a %s: %v", inner, middle, outer, err)
				}
			}
		}
	}
}

func TestInvalid(t *testing.T) {
	deep := Step("x", some())
	for range MaxDepth + 1 {
		deep = Chain(deep)
	}
	big := make([]Part, MaxSteps+1)
	for i := range big {
		big[i] = Step("", some())
	}
	a := Step("a", some())
	when := func(name string, when ojs.Condition, after ...string) Node {
		return Node{Name: name, Job: some(), After: after, When: when}
	}
	node := func(name string, after ...string) Node { return when(name, "", after...) }
	for name, c := range map[string]struct {
		part  Part
		wants []string
	}{
		"W007 nothing":   {nil, []string{"$ is nil"}},
		"W007 no part":   {Chain(nil), []string{"$.steps[0] is nil"}},
		"W007 callbacks": {Batch(a), []string{"$ is a batch without callbacks; use a group"}},
		"W007 nor of nothing": {Batch(Group()), []string{
			"$ is a batch without callbacks; use a group"}},
		"W007 no callback": {Batch(a, Callback{}), []string{
			"$ has a callback that is none; use OnComplete, OnSuccess or OnFailure"}},
		"W007 twice": {Batch(a, OnSuccess(some()), OnSuccess(some()).Named("b")), []string{
			"$ has two callbacks on_success"}},
		"W080 no saga": {Undoable("a", some(), some()), []string{
			"$ has a compensation, and is in no saga; use Step, or put it into a Saga"}},
		"W080 policy": {Saga("x", a), []string{
			`$ has the policy "x"; use Compensate, RetryFirst or Skip`}},
		"W080 names": {Saga(Compensate, Undoable("a", some(), some()), Step("undo-a", some())), []string{
			`$.steps[0].compensation has the name "undo-a" of another step; ` +
				`names are unique within a workflow`}},
		"W005 depth": {deep, []string{
			"$" + strings.Repeat(".steps[0]", MaxDepth+1) + " is nested more than 8 levels deep"}},
		"W005 steps": {Group(big...), []string{
			"$.jobs[10000] is one step more than the 10000 that a workflow may have"}},
		"W061 names": {Group(a, a), []string{
			`$.jobs[1] has the name "a" of another step; names are unique within a workflow`}},
		"W061 no name": {Graph(Node{Job: some()}), []string{"$ has a node without a name, at 0"}},
		"W061 unknown": {Graph(node("a", "b")), []string{
			`$.steps[0] waits for "b", which is no node of the graph`}},
		"W061 itself": {Graph(node("a", "a")), []string{"$.steps[0] waits for itself"}},
		"W061 repeated": {Graph(node("a"), node("b", "a", "a")), []string{
			`$.steps[1] names "a" twice`}},
		"W061 circle": {Graph(node("a", "b"), node("b", "a")), []string{
			`$.steps[0] "a" waits, directly or through others, for nodes that wait for each other`}},
		"condition": {Graph(node("a"), when("b", "x", "a")), []string{
			`$.steps[1] has the condition "x"; use all_succeeded, any_failed or all_ended`}},
		"condition of none": {Graph(when("b", ojs.AllEnded)), []string{
			"$.steps[0] has the condition all_ended, and waits for no node"}},
		"W009 all the faults": {Chain(nil, Group(nil)), []string{
			"$.steps[0] is nil", "$.steps[1].jobs[0] is nil"}},
		"W008 job": {Step("a", ojs.NewDraft("No Type", nil)), []string{
			`$ has no valid job: ojs: invalid type: `}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New("", c.part).build()
			invalid, ok := err.(*InvalidError)
			if !ok {
				t.Fatalf("%v", err)
			}
			for i, want := range c.wants {
				if i >= len(invalid.Faults) || len(invalid.Faults) != len(c.wants) {
					t.Fatalf("%v, want %s", err, c.wants)
				}
				if got := invalid.Faults[i].Path + " " + invalid.Faults[i].Message; got != want &&
					(name != "W008 job" || got[:len(want)] != want) {
					t.Errorf("%s\nwant %s", got, want)
				}
			}
		})
	}
}

// A scheduled step that an equal job takes over keeps all that makes it a step
// [unique-5].
func TestUpdatedStepsStaySteps(t *testing.T) {
	job := ojs.NewDraft("x", 1)
	for shape, part := range map[string]Part{
		"chain": Chain(Step("a", job), Step("b", job)),
		"group": Group(Step("a", job), Step("b", job)),
		"batch": Batch(Group(Step("a", job)), OnComplete(job)),
		"saga":  Saga(Compensate, Undoable("a", job, job)),
	} {
		w := New("n", part)
		b, err := w.builder()
		if err != nil {
			t.Fatal(err)
		}
		meta := append(common("id", w.name, kind(w.root)), ojs.WithMeta(metaAddition, "id of an addition"))
		for _, d := range w.drafts(b, uuid.Must(uuid.NewV7()), Type, meta...) {
			var o ojs.Options
			o.Apply(d.Options()...)
			r := storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{Meta: maps.Clone(o.Meta)}}}
			if r.Update(new(storage.Record)); o.Meta[MetaStep] != nil && !reflect.DeepEqual(r.Meta, o.Meta) {
				t.Errorf("%s: a step has the meta %v then, not %v", shape, r.Meta, o.Meta)
			}
		}
	}
}
