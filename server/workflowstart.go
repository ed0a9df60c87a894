package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/stored"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/workflow"
)

// Workflows (W001-W077). A request becomes a workflow of package workflow. Its record
// keeps the outline of the request, by which answers have the form of the request again.

var workflowRoutes = []route{
	{method: http.MethodPost, path: "/workflows", need: permEnqueue, body: requiredBody, large: true,
		waits: true,
		serve: (*Server).startWorkflow},
	{method: http.MethodGet, path: "/workflows", need: permInspect, whole: true,
		serve: (*Server).listWorkflows},
	{method: http.MethodGet, path: "/workflows/{id}", need: permInspect, serve: (*Server).getWorkflow},
	{method: http.MethodDelete, path: "/workflows/{id}", need: permCancel, body: optionalBody,
		serve: (*Server).cancelWorkflow},
	{method: http.MethodPost, path: "/workflows/{id}/cancel", need: permCancel, body: optionalBody,
		serve: (*Server).cancelWorkflow},
	{method: http.MethodGet, path: "/workflows/{id}/progress", need: permInspect,
		serve: (*Server).workflowProgress},
}

// Attributes of stored jobs that no answer has.
const (
	keyOutline = "ojs:workflow" // of the record: its outline
	keyStep    = "ojs:step"     // of a step: its stepNote
)

// The forms of a workflow, and of a member that is one.
const (
	formChain = "chain"
	formGroup = "group"
	formBatch = "batch"
	formSaga  = "saga"
	formGraph = "dag" // which has no type in requests
)

// outline is a workflow, or a member that is one.
type outline struct {
	ID        string         `json:"id,omitempty"` // of a member, as given
	Name      string         `json:"name,omitempty"`
	Form      string         `json:"form"`
	Members   []outlined     `json:"members"`
	Callbacks map[string]int `json:"callbacks,omitempty"` // the nodes of on_complete, on_success, on_failure
	// of a graph: the places of the members that each waits for
	After [][]int `json:"after,omitempty"`
}

// outlined is a member: the node of its job, or an outline.
type outlined struct {
	node int
	name string // of the step, until the node is known
	sub  *outline
}

// MarshalJSON writes the node or the outline.
func (o outlined) MarshalJSON() ([]byte, error) {
	if o.sub != nil {
		return json.Marshal(o.sub)
	}
	return strconv.AppendInt(nil, int64(o.node), 10), nil
}

// UnmarshalJSON reads what MarshalJSON has written.
func (o *outlined) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		return json.Unmarshal(b, &o.sub)
	}
	return json.Unmarshal(b, &o.node)
}

// stepNote is what a step's member has that its job has not.
type stepNote struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	Path []int  `json:"path"` // the places in the outline; of a callback that of its batch
	// of a callback: its kind
	Callback string `json:"callback,omitempty"`
	Undoes   bool   `json:"undoes,omitempty"` // it is the compensation of the step at the path
}

// flow is a request for a workflow that is read.
type flow struct {
	s      *Server
	c      *call
	faults []workflow.Fault    // the first 100
	found  int                 // the number of all faults
	names  map[string]bool     // of steps
	notes  map[string]stepNote // by the names of steps
	calls  map[string]*outline // the batch of each callback, by the name of the step
	depth  int
	err    error // that is no fault of the request
}

func (f *flow) fault(path, message string) {
	if f.found++; len(f.faults) < 100 {
		f.faults = append(f.faults, workflow.Fault{Path: path, Message: message})
	}
}

// step takes a name for a step that no other has: the one given, if it can be.
func (f *flow) step(n stepNote) string {
	name := n.ID
	if name == "" {
		name = n.Name
	}
	usable := func() bool { return name != "" && len(name) <= 128 && !f.names[name] }
	if !usable() {
		name = "step"
		for _, i := range n.Path {
			name += "-" + strconv.Itoa(i)
		}
		if n.Callback != "" {
			name += "-" + n.Callback
		}
	}
	for !usable() {
		name += "'"
	}
	f.names[name] = true
	f.notes[name] = n
	return name
}

// primitives are the members of which one makes an object a workflow (W004).
var primitives = []string{"steps", "jobs", "callbacks"}

func isWorkflow(o object) bool {
	return slices.ContainsFunc(primitives, func(name string) bool { return o.get(name) != nil })
}

// members splits a list of objects. Anything else is a fault, and nil in the list.
func (f *flow) members(in *input, name string) (list []*input) {
	values := in.list(name)
	if in.err != nil {
		f.refused(in.path+name, in.err)
		in.err = nil
		return nil
	}
	if len(values) == 0 {
		f.fault(in.path+name, "has no members")
	}
	if len(values) > workflow.MaxSteps {
		f.fault(in.path+name, "has "+strconv.Itoa(len(values))+" members: a workflow has at most "+
			strconv.Itoa(workflow.MaxSteps)+" steps")
		return nil
	}
	for i, v := range values {
		path := in.path + name + "[" + strconv.Itoa(i) + "]"
		o, err := object(nil), error(nil)
		if v[0] == '{' {
			o, err = split(v, path+".")
		} else {
			err = invalid(path, "is not an object")
		}
		if err != nil {
			f.refused(path, err)
			list = append(list, nil)
			continue
		}
		list = append(list, &input{object: o, path: path + "."})
	}
	return list
}

// failed notes why an attribute of in is refused, if one is, and clears the error.
func (f *flow) failed(in *input) bool {
	err := in.err
	if in.err = nil; err != nil {
		f.refused(in.path, err)
	}
	return err != nil
}

// refused notes why a member is refused.
func (f *flow) refused(path string, err error) {
	r := f.c.refusalOf(err)
	if r.status >= http.StatusInternalServerError || r.code == codeDenied {
		f.err = err
		return
	}
	path = strings.TrimSuffix(path, ".")
	for k := 0; k+1 < len(r.details); k += 2 {
		if field, ok := r.details[k+1].(string); ok && r.details[k] == "field" {
			if strings.HasPrefix(field, "$") {
				path = field
			} else { // the library knows no path
				path += "." + field
			}
		}
	}
	f.fault(path, r.message)
}

// part reads a workflow, or a member that is one.
func (f *flow) part(in *input, at []int) (workflow.Part, *outline) {
	if f.depth++; f.depth > workflow.MaxDepth+1 {
		f.fault(in.path, "is nested more than "+strconv.Itoa(workflow.MaxDepth)+" levels deep")
		return nil, nil
	}
	defer func() { f.depth-- }()
	form := in.text("type")
	switch {
	case form == formChain, form == formSaga:
		return f.chain(in, form, at)
	case form == formGroup, form == formBatch:
		return f.group(in, form, at)
	case form != "":
		f.fault(in.path+"type",
			"is no type of a workflow: use chain, group, batch or saga, or none for steps with depends_on")
		return nil, nil
	}
	return f.graph(in, at)
}

// member reads a member: a job or a workflow.
func (f *flow) member(in *input, at []int) (workflow.Part, outlined) {
	if isWorkflow(in.object) {
		part, sub := f.part(in, at)
		if sub != nil {
			sub.ID, sub.Name = in.text("id"), in.text("name")
		}
		f.failed(in)
		return part, outlined{sub: sub}
	}
	d, note := f.job(in)
	note.Path = at
	name := f.step(note)
	return workflow.Step(name, d), outlined{name: name}
}

// job reads the job of a member. Members of the step are left out.
func (f *flow) job(in *input) (ojs.Draft, stepNote) {
	note := stepNote{ID: in.text("id")}
	f.failed(in)
	note.Name = in.text("name")
	f.failed(in)
	o := slices.Clone(in.object)
	for _, name := range []string{"id", "name", "depends_on", "step_id"} {
		o = o.without(name)
	}
	if v := o.get("options"); v != nil && v[0] == '{' {
		if options, err := split(v, in.path+"options."); err == nil && options.has("callback_type") {
			o = o.set("options", options.without("callback_type").appendJSON(nil))
		}
	}
	d, _, err := f.s.draftOf(&input{object: o, path: in.path, call: f.c})
	if err != nil {
		f.refusedEach(in.path, o, err)
	}
	return d, note
}

// refusedEach notes each attribute for which a job is refused, or else why it is.
func (f *flow) refusedEach(path string, o object, err error) {
	before := f.found
	names := []string{"type", "args"}
	for _, m := range o {
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	try := func(at, name string, value []byte) {
		one := object{{"type", []byte(`"a"`)}, {"args", []byte("[]")}}.without(name)
		if value != nil {
			one = append(one, member{name, value})
		}
		if _, _, err := f.s.draftOf(&input{object: one, path: path, call: f.c}); err != nil {
			f.refused(at, err)
		}
	}
	for _, name := range names {
		value := o.get(name)
		if name != "options" || kindOf(value) != "object" {
			try(path, name, value)
			continue
		}
		options, err := split(value, path+"options.")
		if err != nil {
			f.refused(path, err)
		}
		for i := range options {
			try(path+"options", name, options[i:i+1].appendJSON(nil))
		}
	}
	if f.found == before {
		f.refused(path, err)
	}
}

func (f *flow) chain(in *input, form string, at []int) (workflow.Part, *outline) {
	out := &outline{Form: form}
	var parts []workflow.Part
	names := make(map[string]bool) // of the steps of a saga (W080)
	for i, m := range f.members(in, "steps") {
		if m == nil {
			continue
		}
		place := append(slices.Clone(at), i)
		if form == formSaga {
			name := m.text("name")
			m.err = nil // job notes it
			if name != "" && names[name] {
				f.fault(m.path+"name", "is that of another step")
			}
			names[name] = true
			part, member := f.undoable(m, place)
			parts, out.Members = append(parts, part), append(out.Members, member)
			continue
		}
		part, member := f.member(m, place)
		parts, out.Members = append(parts, part), append(out.Members, member)
	}
	if form == formChain {
		return workflow.Chain(parts...), out
	}
	policy := workflow.SagaPolicy(in.text("failure_policy"))
	switch policy {
	case "":
		policy = workflow.Compensate
	case workflow.Compensate, workflow.RetryFirst, workflow.Skip:
	default:
		f.fault(in.path+"failure_policy", "is no policy: use compensate, retry or skip")
	}
	return workflow.Saga(policy, parts...), out
}

// undoable reads a step of a saga (W080).
func (f *flow) undoable(in *input, at []int) (workflow.Part, outlined) {
	undo := object{}
	for _, name := range []string{"compensate_type", "compensate_args"} {
		if v := in.get(name); v != nil {
			undo = append(undo, member{name[len("compensate_"):], v})
		}
		in.object = in.object.without(name)
	}
	if v := in.get("job_type"); v != nil {
		in.object = in.object.without("job_type").set("type", v)
	}
	if undo.get("type") == nil {
		return f.member(in, at)
	}
	if undo.get("args") == nil {
		undo = append(undo, member{"args", []byte("[]")})
	}
	d, note := f.job(in)
	note.Path = at
	name := f.step(note)
	f.notes["undo-"+name] = stepNote{Path: at, Undoes: true} // as workflow.Undoable names it
	o := ojs.DefaultOptions()
	o.Apply(d.Options()...)
	undo = append(undo, member{"queue", marshal(o.Queue)}) // that of the step (W082)
	back, _, err := f.s.draftOf(&input{object: undo, path: in.path + "compensate_", call: f.c})
	if err != nil {
		f.refused(in.path+"compensate_type", err)
	}
	return workflow.Undoable(name, d, back), outlined{name: name}
}

func (f *flow) group(in *input, form string, at []int) (workflow.Part, *outline) {
	out := &outline{Form: form}
	var parts []workflow.Part
	for i, m := range f.members(in, "jobs") {
		if m == nil {
			continue
		}
		part, member := f.member(m, append(slices.Clone(at), i))
		parts, out.Members = append(parts, part), append(out.Members, member)
	}
	if form == formGroup {
		return workflow.Group(parts...), out
	}
	given := in.within("callbacks")
	if in.err != nil {
		f.refused(in.path+"callbacks", in.err)
		in.err = nil
		return nil, out
	}
	given.object = slices.DeleteFunc(given.object, func(m member) bool { return isNull(m.value) })
	if len(given.object) == 0 {
		f.fault(in.path+"callbacks", "are none: give at least one of on_complete, on_success and on_failure")
	}
	var callbacks []workflow.Callback
	for _, m := range given.object {
		path := given.path + m.name
		if _, known := callbackOf[m.name]; !known {
			f.fault(path, "is no callback: use on_complete, on_success or on_failure")
			continue
		}
		o, err := object(nil), error(nil)
		if m.value[0] == '{' {
			o, err = split(m.value, path+".")
		} else {
			err = invalid(path, "is not an object")
		}
		if err != nil {
			f.refused(path, err)
			continue
		}
		if isWorkflow(o) {
			f.fault(path, "is a workflow: a callback is a job")
			continue
		}
		callbacks = append(callbacks, f.callback(&input{object: o, path: path + "."}, m.name, out, at))
	}
	return workflow.Batch(workflow.Group(parts...), callbacks...), out
}

var callbackOf = map[string]func(ojs.Draft) workflow.Callback{"on_complete": workflow.OnComplete,
	"on_success": workflow.OnSuccess, "on_failure": workflow.OnFailure}

// callback reads a callback of a batch.
func (f *flow) callback(in *input, kind string, of *outline, at []int) workflow.Callback {
	d, note := f.job(in)
	note.Path, note.Callback = at, kind
	if note.ID == "" && note.Name == "" {
		note.Name = kind
	}
	name := f.step(note)
	f.calls[name] = of
	if of.Callbacks == nil {
		of.Callbacks = make(map[string]int)
	}
	return callbackOf[kind](d).Named(name)
}

// graph reads steps with depends_on (W060, W061, W065).
func (f *flow) graph(in *input, at []int) (workflow.Part, *outline) {
	out := &outline{Form: formGraph}
	before := f.found
	list := f.members(in, "steps")
	places := make(map[string]int, len(list)) // by ids
	ids, after := make([]string, len(list)), make([][]string, len(list))
	nameless := false // a step whose id is not known, which others may name
	for i, m := range list {
		if m == nil {
			nameless = true
			continue
		}
		ids[i] = m.text("id")
		switch _, twice := places[ids[i]]; {
		case f.failed(m):
			nameless = true
			m.object = m.object.without("id") // job would note it again
		case ids[i] == "":
			f.fault(m.path+"id", "is missing")
		case twice:
			f.fault(m.path+"id", "is that of another step")
		default:
			places[ids[i]] = i
		}
		if after[i] = m.texts("depends_on"); f.failed(m) {
			after[i] = nil
		}
	}
	for i, m := range list {
		named := make(map[string]bool, len(after[i]))
		for _, id := range after[i] {
			place, known := places[id]
			switch {
			case !known && nameless:
			case !known:
				f.fault(m.path+"depends_on", "names "+strconv.Quote(clip(id))+", which is no step")
			case place == i:
				f.fault(m.path+"depends_on", "names the step itself")
			case named[id]:
				f.fault(m.path+"depends_on", "names "+strconv.Quote(clip(id))+" twice")
			}
			named[id] = true
		}
	}
	nested := func(m *input) bool {
		if !isWorkflow(m.object) {
			return false
		}
		f.fault(strings.TrimSuffix(m.path, "."), "is a workflow: a step with depends_on is a job")
		return true
	}
	if f.found > before {
		for _, m := range list { // the jobs may have more
			if m != nil && !nested(m) {
				f.job(m)
			}
		}
		return nil, nil
	}
	kinds := f.callbackSteps(list, ids, after, places)
	var nodes []workflow.Node
	var callbacks []workflow.Callback
	outer := make([]string, len(list)) // the names of the steps
	placed := make(map[int]int)        // places among the members
	for i, m := range list {
		if nested(m) {
			continue
		}
		if kinds[i] != "" {
			callbacks = append(callbacks, f.callback(m, kinds[i], out, at))
			continue
		}
		d, note := f.job(m)
		placed[i] = len(out.Members)
		note.Path = append(slices.Clone(at), placed[i])
		outer[i] = f.step(note)
		nodes = append(nodes, workflow.Node{Name: outer[i], Job: d})
		out.Members = append(out.Members, outlined{name: outer[i]})
	}
	if f.found > before {
		return nil, nil
	}
	out.After = make([][]int, len(out.Members))
	for i := range list {
		if kinds[i] != "" {
			continue
		}
		at := placed[i]
		for _, id := range after[i] {
			nodes[at].After = append(nodes[at].After, outer[places[id]])
			out.After[at] = append(out.After[at], placed[places[id]])
		}
	}
	if len(callbacks) > 0 {
		return workflow.Batch(workflow.Graph(nodes...), callbacks...), out
	}
	return workflow.Graph(nodes...), out
}

// callbackSteps returns which steps of a graph are callbacks: they say so, or have the
// name of one, and depend on every step that is none (W065).
func (f *flow) callbackSteps(list []*input, ids []string, after [][]string, places map[string]int) []string {
	named := map[string]string{"on-complete": "on_complete", "on_complete": "on_complete",
		"on-success": "on_success", "on_success": "on_success", "on-failure": "on_failure",
		"on_failure": "on_failure"}
	kinds := make([]string, len(list))
	for i, m := range list {
		kinds[i] = named[ids[i]]
		kind := m.within("options").text("callback_type")
		m.err = nil // of the options: job notes it
		switch {
		case kind == "":
		case callbackOf[kind] == nil:
			f.fault(m.path+"options.callback_type",
				"is no callback: use on_complete, on_success or on_failure")
		default:
			kinds[i] = kind
		}
	}
	steps := 0
	for i := range list {
		if kinds[i] == "" {
			steps++
		}
	}
	plain, followers := steps, make([][]int, len(list))
	for i := range list {
		covered := 0
		for _, id := range after[i] {
			k := places[id]
			followers[k] = append(followers[k], i)
			if kinds[k] == "" {
				covered++
			}
		}
		if kinds[i] != "" && (steps == 0 || covered < plain) {
			kinds[i] = "" // a step like any other
			plain++
		}
	}
	for i := range list { // no step waits for a callback
		if slices.ContainsFunc(followers[i], func(k int) bool { return kinds[k] == "" }) {
			kinds[i] = ""
		}
	}
	return kinds
}

// id reads the id of a workflow, or makes one (W006).
func (f *flow) id(in *input) string {
	if id := in.text("id"); !f.failed(in) && id != "" {
		u, err := uuid.Parse(id)
		if err == nil && len(id) == 36 && u.Version() == 7 {
			return u.String()
		}
		f.fault("$.id", "is no UUIDv7")
	}
	return uuid.Must(uuid.NewV7()).String()
}

// startWorkflow answers POST /workflows (W070).
func (s *Server) startWorkflow(c *call) error {
	in := c.in()
	in.path = "$."
	f := &flow{s: s, c: c, names: make(map[string]bool), notes: make(map[string]stepNote),
		calls: make(map[string]*outline)}
	id := f.id(in)
	name := in.text("name")
	f.failed(in)
	common := f.common(in)
	part, out := f.part(in, nil)
	if f.err != nil {
		return f.err
	}
	if len(f.faults) > 0 {
		return invalidWorkflow(f.faults)
	}
	drafts, err := workflow.New(name, part, common...).Drafts(id)
	var bad *workflow.InvalidError
	switch {
	case errors.As(err, &bad):
		return invalidWorkflow(bad.Faults)
	case err != nil:
		return err
	}
	if err := f.note(drafts, out); err != nil {
		return err
	}
	if rec, err := s.record(c.ctx, id); err == nil {
		state := string(rec.State)
		if w, err := s.workflow(c, id); err == nil {
			state = string(w.State)
		}
		return refuse(http.StatusConflict, codeDuplicate, "a workflow with the id %s is stored", id).
			with("existing_job_id", id).with("existing_state", state)
	} else if !stored.Missing(err) {
		return err
	}
	queues := make(map[string]string)
	_, err = s.enqueueAll(c, drafts, func(_ int, rec *storage.Record) { queues[rec.Queue] = rec.ID })
	if err != nil {
		return err
	}
	w, err := s.workflow(c, id)
	if err != nil {
		return err
	}
	s.pressure(c, queues)
	c.w.Header()["Location"] = []string{base + "/workflows/" + id}
	v := s.view(w)
	return c.reply(http.StatusCreated, append(obj{"workflow", v}, v...))
}

// invalidWorkflow refuses a workflow with all that is wrong with it (W009).
func invalidWorkflow(faults []workflow.Fault) error {
	list := make([]obj, len(faults))
	for i, f := range faults {
		list[i] = obj{"path", f.Path, "message", f.Message}
	}
	r := refuse(http.StatusBadRequest, "invalid_workflow", "the workflow is not valid: %s %s", faults[0].Path,
		faults[0].Message)
	return r.with("validation_errors", list)
}

// common reads the options that hold for every member (W002).
func (f *flow) common(in *input) []ojs.Option {
	v := in.get("options")
	if v == nil {
		return nil
	}
	o := object{{"type", []byte(`"a"`)}, {"args", []byte("[]")}, {"options", v}}
	d, _, err := f.s.draftOf(&input{path: "$.", call: f.c, object: o})
	if err != nil {
		f.refusedEach("$.", o, err)
		return nil
	}
	return d.Options()
}

// note gives the record the outline and each step its note, and checks the permission for
// each queue.
func (f *flow) note(drafts []ojs.Draft, out *outline) error {
	nodes := make(map[string]int, len(f.names))
	for i, d := range drafts {
		o := ojs.DefaultOptions()
		o.Apply(d.Options()...)
		if name, ok := o.Meta[workflow.MetaStep].(string); ok {
			nodes[name] = i
			if err := f.c.may(o.Queue); err != nil {
				return err
			}
			drafts[i] = d.With(extraOption(keyStep, marshal(f.notes[name])))
		}
	}
	out.place(nodes)
	for name, of := range f.calls {
		of.Callbacks[f.notes[name].Callback] = nodes[name]
	}
	last := len(drafts) - 1
	drafts[last] = drafts[last].With(extraOption(keyOutline, marshal(out)))
	return nil
}

// place sets the nodes of the members by the names of their steps.
func (o *outline) place(nodes map[string]int) {
	for i := range o.Members {
		if m := &o.Members[i]; m.sub != nil {
			m.sub.place(nodes)
		} else {
			m.node = nodes[m.name]
		}
	}
}

// extraOption adds an attribute to those of a draft.
func extraOption(name string, value []byte) ojs.Option {
	return func(o *ojs.Options) {
		extra := make(map[string]json.RawMessage, len(o.Extra)+1)
		for k, v := range o.Extra {
			extra[k] = v
		}
		extra[name] = value
		o.Extra = extra
	}
}
