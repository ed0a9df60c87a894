package workflow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
)

// A workflow becomes a list of nodes, each after the nodes that it depends on:
//
//   - a step depends on the last nodes of what comes before it;
//   - where several nodes come before several others, a join stands between them: n + m
//     edges, not n x m;
//   - a callback depends on joins that say that all jobs of its batch have ended, that
//     its parts have succeeded, or that they have not;
//   - the last two nodes are the outcome, which completes if the workflow succeeds, and
//     the record, which completes when all have ended;
//   - a shape without parts has no nodes: the next part waits for the part before it. A
//     join that waits for no node waits for its turn in an ordering key of its own,
//     which it has at once. In what Add adds it waits for the end of the adding step.
//
// Conditions are made of the three that the storage knows. not(a) is a join for AnyFailed
// of a. a or b is not(not(a) and not(b)): a join for AnyFailed of not(a) and not(b).

// node is a job of a workflow.
type node struct {
	name     string // of a step; "" for a join
	callback string // of a batch: on_complete, on_success, on_failure
	undoes   int    // of a compensation: the step that it undoes, counted from 1
	adds     bool   // an Adder
	member   bool   // of a group or batch, and no callback
	priority *int   // that it has from the first step of its chain; nil: it has its own
	job      ojs.Draft
	after    []int
	when     ojs.Condition
	at       string // the path
}

func (n *node) join() bool { return n.name == "" }

type builder struct {
	nodes  []node
	names  map[string]bool
	prefix string      // of the names of steps
	sagas  []sagaNodes // in the order of their begins
	saga   *saga       // the innermost that compensates; nil: none
	opts   []ojs.Option
	member bool // within a group or batch
	begins bool // the innermost chain has no step yet
	first  *int // the priority of the first step of the innermost chain, for its later steps; nil: none
	steps  int
	depth  int
	at     string
	faults []Fault
}

func (w *Workflow) builder() (*builder, error) {
	b := &builder{prefix: w.prefix, names: make(map[string]bool), at: "$", opts: w.opts, member: w.member}
	last := b.part(w.root, "", nil)
	if len(b.faults) > 0 {
		return nil, &InvalidError{b.faults}
	}
	b.join(ojs.AllSucceeded, last...)
	return b, nil
}

func (b *builder) fault(format string, args ...any) {
	if len(b.faults) < maxFaults {
		b.faults = append(b.faults, Fault{b.at, fmt.Sprintf(format, args...)})
	}
}

const maxFaults = 100 // that an error lists

// part adds a part at a path below the current one.
func (b *builder) part(p Part, below string, before []int) []int {
	at := b.at
	b.at += below
	b.depth++
	defer func() { b.at, b.depth = at, b.depth-1 }()
	switch {
	case p == nil:
		b.fault("is nil")
	case b.depth > MaxDepth+1:
		b.fault("is nested more than %d levels deep", MaxDepth)
	default:
		return p.add(b, before)
	}
	return nil
}

// step adds a step.
func (b *builder) step(n node) int {
	if b.steps++; b.steps == MaxSteps+1 {
		b.fault("is one step more than the %d that a workflow may have", MaxSteps)
	}
	if n.name == "" {
		n.name = fmt.Sprintf("step-%d", b.steps-1)
		if n.undoes > 0 {
			n.name = "undo-" + strings.TrimPrefix(b.nodes[n.undoes-1].name, b.prefix)
		}
	}
	n.name = b.prefix + n.name
	switch {
	case len(n.name) > maxName:
		b.fault("has a name of %d bytes; at most %d are allowed", len(n.name), maxName)
	case b.names[n.name]:
		b.fault("has the name %q of another step; names are unique within a workflow", n.name)
	}
	b.names[n.name] = true
	if err := ojs.ValidateType(n.job.Type()); err != nil {
		b.fault("has no valid job: %v", err)
	}
	n.at, n.after = b.at, distinct(n.after)
	n.member = b.member && n.callback == ""
	if b.first != nil && b.priority(&n) == nil {
		n.priority = b.first
	}
	b.nodes = append(b.nodes, n)
	return len(b.nodes) - 1
}

const maxName = 128

// priority returns the priority that a step has, nil if no option says one.
func (b *builder) priority(n *node) *int {
	if n.priority != nil {
		return n.priority
	}
	const none = math.MinInt
	o := ojs.Options{Priority: none}
	for _, opts := range [][]ojs.Option{n.job.Defaults(), b.opts, n.job.Options()} {
		o.Apply(opts...)
	}
	if o.Priority == none {
		return nil
	}
	return &o.Priority
}

// line adds parts one after the other. Steps of the later parts that have no priority get
// that of the first step.
func (b *builder) line(parts []Part, before []int) []int {
	defer b.inherits()()
	for i, p := range parts {
		start := len(b.nodes)
		before = b.part(p, fmt.Sprintf(".steps[%d]", i), before)
		b.begun(start)
	}
	return before
}

// inherits begins a chain or graph, of which the steps that come after a call of begun
// get the priority of the first one. It ends when end is called.
func (b *builder) inherits() (end func()) {
	outer, begins := b.first, b.begins
	b.begins = true
	return func() { b.first, b.begins = outer, begins }
}

// begun follows a part of a chain, whose nodes are those from start on.
func (b *builder) begun(start int) {
	for i := start; b.begins && i < len(b.nodes); i++ {
		if n := &b.nodes[i]; !n.join() {
			b.first, b.begins = b.priority(n), false
		}
	}
}

// stepsFrom returns the steps among the nodes from one on.
func (b *builder) stepsFrom(first int) (steps []int) {
	for i := first; i < len(b.nodes); i++ {
		if !b.nodes[i].join() {
			steps = append(steps, i)
		}
	}
	return steps
}

// join adds a join.
func (b *builder) join(when ojs.Condition, after ...int) int {
	b.nodes = append(b.nodes, node{after: distinct(after), when: when})
	return len(b.nodes) - 1
}

// distinct returns nodes without repetitions: parts side by side may end with the same
// node, that before sagas which skip.
func distinct(nodes []int) []int {
	seen := make(map[int]bool, len(nodes))
	var list []int
	for _, i := range nodes {
		if !seen[i] {
			seen[i] = true
			list = append(list, i)
		}
	}
	return list
}

// one returns nodes as one at most: a join for their success stands for several.
func (b *builder) one(nodes []int) []int {
	if len(nodes) < 2 {
		return nodes
	}
	return []int{b.join(ojs.AllSucceeded, nodes...)}
}

// not adds a join that completes if a node fails.
func (b *builder) not(i int) int { return b.join(ojs.AnyFailed, i) }

func (s step) add(b *builder, before []int) []int {
	return []int{b.step(node{name: s.name, job: b.saga.once(s.job), adds: s.adds, after: before,
		when: ojs.AllSucceeded})}
}

func (c chain) add(b *builder, before []int) []int {
	return b.line(c, before)
}

func (g group) add(b *builder, before []int) (last []int) {
	if len(g) == 0 {
		return before
	}
	defer b.beside()()
	if len(g) > 1 {
		before = b.one(before)
	}
	for i, p := range g {
		last = append(last, b.part(p, fmt.Sprintf(".jobs[%d]", i), before)...)
	}
	return last
}

// beside makes the steps to come members of a group or batch until end is called.
func (b *builder) beside() (end func()) {
	outer := b.member
	b.member = true
	return func() { b.member = outer }
}

func (bt batch) add(b *builder, before []int) []int {
	before = b.one(before)
	first, end := len(b.nodes), b.beside()
	parts := b.part(bt.parts, "", before)
	end()
	if len(b.faults) > 0 {
		return nil
	}
	ended := b.join(ojs.AllEnded, b.stepsFrom(first)...)
	succeeded := b.join(ojs.AllSucceeded, parts...)
	failed := b.not(succeeded)
	if len(bt.callbacks) == 0 {
		b.fault("is a batch without callbacks; use a group")
	}
	fired := make(map[string]int)
	for _, c := range bt.callbacks {
		after := append(slices.Clone(before), ended) // a batch that does not begin calls nothing back
		switch c.when {
		case onSuccess:
			after = append(after, succeeded)
		case onFailure:
			after = append(after, failed)
		case "":
			b.fault("has a callback that is none; use OnComplete, OnSuccess or OnFailure")
			continue
		}
		if _, twice := fired[c.when]; twice {
			b.fault("has two callbacks %s", c.when)
		}
		fired[c.when] = b.step(node{
			name: c.name, callback: c.when, job: c.job, after: after, when: ojs.AllSucceeded,
		})
	}
	// It has succeeded if its parts and the callback of that have, or if they have failed
	// and the callback of that has succeeded; and if on_complete has succeeded.
	good := succeeded
	if i, ok := fired[onSuccess]; ok {
		good = i
	}
	complete, always := fired[onComplete]
	bad, handled := fired[onFailure]
	switch {
	case handled:
	case always:
		bad = failed
	default:
		return []int{good}
	}
	last := []int{b.join(ojs.AnyFailed, b.not(good), b.not(bad))}
	if always {
		last = append(last, complete)
	}
	return last
}

func (g graph) add(b *builder, before []int) (last []int) {
	if len(g) == 0 {
		return before
	}
	places := make(map[string]int, len(g))
	for i, n := range g {
		if n.Name == "" {
			b.fault("has a node without a name, at %d", i)
		}
		places[n.Name] = i
	}
	if len(b.faults) > 0 {
		return nil
	}
	before = b.one(before)
	order := b.order(g, places)
	if len(b.faults) > 0 {
		return nil
	}
	at := b.at
	defer func() { b.at = at }()
	defer b.inherits()()
	start, nodes := len(b.nodes), make([]int, len(g)) // by place in g
	for _, i := range order {
		n := g[i]
		b.at = fmt.Sprintf("%s.steps[%d]", at, i)
		when := cmp.Or(n.When, ojs.AllSucceeded)
		switch {
		case !when.Valid():
			b.fault("has the condition %q; use all_succeeded, any_failed or all_ended", n.When)
		case when != ojs.AllSucceeded && len(n.After) == 0:
			b.fault("has the condition %s, and waits for no node", when)
		}
		var after []int
		for _, name := range n.After {
			b.begun(start)
			after = append(after, nodes[places[name]])
		}
		switch {
		case len(after) == 0:
			after = before
		case when != ojs.AllSucceeded && len(before) > 0: // a graph that does not begin runs nothing
			after, when = append(slices.Clone(before), b.join(when, after...)), ojs.AllSucceeded
		}
		nodes[i] = b.step(node{name: n.Name, job: b.saga.once(n.Job), after: after, when: when})
		// A node for AnyFailed runs only if another has failed, which decides already.
		if n.When != ojs.AnyFailed {
			last = append(last, nodes[i])
		}
	}
	return last
}

// order returns the nodes of a graph, each after those that it waits for, and otherwise
// in the order given.
func (b *builder) order(g graph, places map[string]int) []int {
	at := b.at
	defer func() { b.at = at }()
	waits := make([]int, len(g))
	next := make([][]int, len(g))
	for i, n := range g {
		b.at = fmt.Sprintf("%s.steps[%d]", at, i)
		seen := make(map[string]bool)
		for _, name := range n.After {
			k, ok := places[name]
			switch {
			case !ok:
				b.fault("waits for %q, which is no node of the graph", name)
				continue
			case k == i:
				b.fault("waits for itself")
			case seen[name]:
				b.fault("names %q twice", name)
			}
			seen[name] = true
			waits[i]++
			next[k] = append(next[k], i)
		}
	}
	var order []int
	for i, n := range waits {
		if n == 0 {
			order = append(order, i)
		}
	}
	for k := 0; k < len(order); k++ {
		for _, i := range next[order[k]] {
			if waits[i]--; waits[i] == 0 {
				order = append(order, i)
			}
		}
	}
	for i, n := range waits {
		if n > 0 && len(b.faults) == 0 {
			b.at = fmt.Sprintf("%s.steps[%d]", at, i)
			b.fault("%q waits, directly or through others, for nodes that wait for each other", g[i].Name)
		}
	}
	return order
}
