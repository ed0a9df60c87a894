package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/charmbracelet/x/ansi"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage"
)

// call runs the command with variables, and returns what it prints and its exit code.
func (sh *shell) call(in string, env []string, args ...string) (out, errs string, code int) {
	sh.t.Helper()
	var o, e bytes.Buffer
	p := program{env: environment(append(env, "OJS_STORAGE", sh.address, "USER", "ada")...),
		in:  strings.NewReader(in),
		out: &o, errs: &e, clock: sh.shop.clock, storage: sh.shop.st, rand: sh.rand}
	code = p.run(context.Background(), args)
	return o.String(), e.String(), code
}

// looks are calls that print tables.
var looks = []string{"stats", "jobs", "dead", "failures", "queues", "limits", "cron",
	"cron show digest.daily", "workers",
	"workflows", "tail --once --since 3h", "config", "jobs --by type",
	"explain 01a21ce0-6e00-700c-81d4-55e386d77ced"}

// No line of a table is wider than the terminal.
func TestTablesFit(t *testing.T) {
	sh := newShell(t, onMemory, true)
	for _, look := range looks {
		for _, width := range []string{"80", "100", "132", "160"} {
			out, errs, code := sh.call("", []string{"COLUMNS", width}, strings.Fields(look)...)
			if code != 0 || errs != "" {
				t.Fatalf("ojs %s: %d %s", look, code, errs)
			}
			for line := range strings.SplitSeq(out, "\n") {
				if n := ansi.StringWidth(line); n > map[string]int{"80": 80, "100": 100, "132": 132,
					"160": 160}[width] {
					t.Errorf("ojs %s at %s: %d columns: %s", look, width, n, line)
				}
			}
		}
	}
}

// A filter without a state cancels no job at a server that has started since it was
// listed.
func TestCancelAtAServerLeavesRunningJobs(t *testing.T) {
	sh := newShell(t, onServer, false)
	ticket, err := sh.shop.eng.Enqueue(t.Context(), "a", nil, ojs.WithQueue("mail"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(sh.address)
	if err != nil {
		t.Fatal(err)
	}
	claimed := 0
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(resp *http.Response) error {
		if resp.Request.URL.Query().Get("state") == "available" {
			_, answer := ask(t, "POST", sh.address+"/ojs/v1/workers/fetch", "k3y", `{"queues":["mail"]}`)
			claimed += len(answer["jobs"].([]any))
		}
		return nil
	}
	web := httptest.NewServer(proxy)
	defer web.Close()
	sh.address = web.URL
	out, errs, code := sh.call("", []string{"OJS_KEY", "k3y"}, "cancel", "queue:mail", "--yes")
	if claimed != 1 || !strings.HasPrefix(out, "0 jobs cancelled, 1 refused") {
		t.Errorf("%d claimed: %d %s%s", claimed, code, out, errs)
	}
	job, err := sh.shop.eng.Get(t.Context(), ticket.ID)
	if err != nil || job.State != ojs.StateActive {
		t.Errorf("the running job is %v, %v", job, err)
	}
	out, errs, _ = sh.call("", []string{"OJS_KEY", "k3y"}, "cancel", "queue:mail", "state:active", "--yes")
	if !strings.HasPrefix(out, "1 job cancelled") {
		t.Errorf("%s%s", out, errs)
	}
}

// A key is not sent in clear to another machine.
func TestKeyInClear(t *testing.T) {
	sh := newShell(t, onMemory, false)
	for address, refused := range map[string]bool{"http://jobs.example.invalid": true,
		"HTTP://192.0.2.1:8080": true, "http://localhost.example.invalid": true,
		"http://127.0.0.1:1": false, "http://[::1]:1": false, "https://jobs.example.invalid": false} {
		ctx, stop := context.WithCancel(t.Context())
		stop() // no call is made
		var out, errs bytes.Buffer
		p := program{env: environment("OJS_STORAGE", address, "OJS_KEY", "k3y"), out: &out, errs: &errs,
			clock: sh.shop.clock}
		code := p.run(ctx, []string{"stats"})
		if got := code == exitUsage && strings.Contains(errs.String(), "https://"); got != refused {
			t.Errorf("%s: %d %s", address, code, errs.String())
		}
		if strings.Contains(errs.String(), "k3y") {
			t.Errorf("%s: %s", address, errs.String())
		}
	}
}

// A pipe gets whole texts: nothing is cut without a terminal.
func TestPipesGetEverything(t *testing.T) {
	sh := newShell(t, onMemory, true)
	out, _, _ := sh.call("", nil, "jobs")
	if strings.Contains(out, "…") || !strings.Contains(out, "reporting.low-priority.overnight-batch") {
		t.Error(out)
	}
}

// Colours are for terminals, unless NO_COLOR is set or --color says otherwise.
func TestColors(t *testing.T) {
	sh := newShell(t, onMemory, true)
	for _, tc := range []struct {
		env     []string
		args    []string
		colored bool
	}{
		{nil, []string{"jobs"}, false}, // no terminal
		{nil, []string{"jobs", "--color", "always"}, true},
		{[]string{"OJS_COLOR", "always"}, []string{"jobs"}, true},
		{[]string{"OJS_COLOR", "always"}, []string{"jobs", "--color", "never"}, false},
		{nil, []string{"jobs", "--color", "always", "-o", "json"}, false},
	} {
		out, errs, code := sh.call("", tc.env, tc.args...)
		if colored := strings.Contains(out, "\x1b["); code != 0 || colored != tc.colored {
			t.Errorf("%v %v: %d %s%s", tc.env, tc.args, code, out, errs)
		}
	}
	v := verbs{flags: flags{Color: "auto"}}
	for _, tc := range []struct {
		terminal bool
		env      []string
		colored  bool
	}{{true, nil, true}, {false, nil, false}, {true, []string{"NO_COLOR", "1"}, false}, {true,
		[]string{"TERM", "dumb"}, false}} {
		if got := colored(v.Color, tc.terminal, environment(tc.env...)); got != tc.colored {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// A text of a job cannot move the cursor, set a title or turn the direction of writing.
func TestHostileTexts(t *testing.T) {
	st, address := newStorage(t, onMemory)
	sh := &shell{t: t, shop: newShop(t, st), address: address}
	hostile := "a\x1b]0;title\x07\x1b[2Jb\u009b31mc\u202ed\nfake line\r\x00"
	sh.shop.enqueue("email.send", map[string]any{"to": hostile}, ojs.WithMeta("note", hostile))
	rec := sh.shop.claim("w\x1b[2J", "email.send")
	sh.shop.end(rec, 0, ojs.StateDiscarded, "odd", hostile)
	sh.shop.enqueue("email.send", nil)
	sh.shop.claim("w\x1b[2J", "email.send")
	sh.shop.node(inspect.Node{ID: "w-1", Host: hostile, Version: hostile, Seen: noon,
		Queues: []string{hostile}, Types: []string{hostile}})
	sh.shop.enqueue("email.send", nil)
	for _, look := range append(looks[:4:4], "tail --once --since 3h", "job "+rec.ID, "explain "+rec.ID,
		"retry state:discarded", "doctor", "workers", "workflows", "top --once", "limits") {
		for _, form := range []string{"table", "wide"} {
			out, errs, _ := sh.call("", nil, append(strings.Fields(look), "-o", form)...)
			if i := strings.IndexFunc(out+errs, func(r rune) bool {
				return r != '\n' && r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x202e
			}); i >= 0 {
				t.Errorf("ojs %s: %q", look, (out + errs)[max(0, i-20):])
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	sh := newShell(t, onMemory, true)
	const completed, none = "01a21ce0-6e00-7001-a9ba-58c435477cdc", "01a21ce0-0000-7000-8000-000000000000"
	for _, tc := range []struct {
		args string
		code int
		says string // on the standard error
	}{
		{"stats", exitDone, ""},
		{"jobs state:nonsense", exitUsage, "nonsense"},
		{"jobs --limit=-1", exitUsage, "0 or more"},
		{"jobs --output xml", exitUsage, "table"},
		{"jobs --cursor nonsense", exitUsage, "cursor"},
		{"job " + none, exitNotFound, "not found"},
		{"job", exitUsage, "<id>"},
		{"explain " + none, exitNotFound, "not found"},
		{"retry " + none, exitNotFound, none},
		{"retry " + completed, exitRefused, "is completed"},
		{"retry " + none + " " + completed, exitRefused, "is completed"},
		{"retry id*", exitUsage, "fix: write id:PREFIX*"},
		{"delete state:active", exitUsage, "active"},
		{"workflows show " + none, exitNotFound, "not found"},
		{"workflows retry " + completed, exitNotFound, ""},
		{"cron run none", exitNotFound, "none"},
		{"enqueue Email.Send", exitUsage, "lower-case"},
		{"enqueue email.send --id 01a21ce0-6e00-7001-a9ba-58c435477cdc", exitRefused, "duplicate"},
		{"limits set queue/mail", exitUsage, "no bounds"},
		{"limits set queue/mail --rate fast", exitUsage, "10/1m"},
		{"tail --every 1ms --once", exitUsage, "100ms"},
		{"dead --limit=-1", exitUsage, "0 or more"},
		{"failures --limit=-1", exitUsage, "0 or more"},
		{"workflows --state typo", exitUsage, "running"},
		{"tail --since=-5s --once", exitUsage, "--since takes"},
		{"export", exitRefused, "not everything is paused"},
		{"-s password=hunter2 stats", exitUsage, "fix: use postgres://"},
		{"doctor", exitFindings, ""},
		{"-s https://ada:hunter2@host stats", exitUsage, "set OJS_KEY"},
		{"-s https://host?key=hunter2 stats", exitUsage, "set OJS_KEY"},
		{"-s https://hunter2%zz stats", exitUsage, "set OJS_KEY"},
		{"-s https://host --schema x stats", exitUsage, "PostgreSQL"},
		{"-s https://hunter2@host config", exitDone, ""},
		{"-s https://host?hunter2 config", exitDone, ""},
		{"-s https://host top", exitUsage, "no call for ojs top"},
		{"migrate sql --from 99", exitUsage, "versions"},
		{"--storage redis://user:hunter2@host stats", exitUsage, "fix: use postgres://"},
	} {
		out, errs, code := sh.call("", nil, strings.Fields(tc.args)...)
		if code != tc.code || !strings.Contains(errs, tc.says) || strings.Contains(out+errs, "hunter2") {
			t.Errorf("ojs %s: exit code %d, not %d: %s%s", tc.args, code, tc.code, out, errs)
		}
	}
}

// An error of an address has a fix and no password. A file that is not there is not made.
func TestWrongAddresses(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.db")
	for address, code := range map[string]int{none: exitFailed,
		"postgres://ada:hunter2@host:port/db":   exitUsage,
		"postgres://ada:hunter2@127.0.0.1:1/db": exitFailed} {
		sh := &shell{t: t, shop: &shop{}, address: address}
		_, errs, got := sh.call("", nil, "stats")
		if got != code || code == exitFailed && !strings.Contains(errs, "fix: ") || strings.Contains(errs,
			"hunter2") {
			t.Errorf("%s: %d %s", address, got, errs)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("the command has made the file")
	}
}

// An argument may be a line of a filter, or a term whose quotes the shell has taken.
func TestFilterArguments(t *testing.T) {
	sh := newShell(t, onMemory, true)
	for _, tc := range []struct {
		args []string
		n    string
	}{
		{[]string{"state:discarded queue:mail"}, "2"},
		{[]string{"state:discarded", "queue:mail"}, "2"},
		{[]string{"error:mailbox 17 is full"}, "1"},
		{[]string{`error:"mailbox 17 is full" queue:mail`}, "1"},
		{[]string{"error:mailbox 17 is full", "queue:media"}, "0"},
	} {
		out, errs, code := sh.call("", nil, append([]string{"jobs", "--count", "-o", "id"}, tc.args...)...)
		if code != 0 || out != tc.n+"\n" {
			t.Errorf("%q: %d %s%s", tc.args, code, out, errs)
		}
	}
}

// Lines before one that is refused are stored, and --from goes on behind them.
func TestEnqueueGoesOn(t *testing.T) {
	sh := newShell(t, onMemory, false)
	sh.run("ojs queues drain closed")
	line := `{"type": "email.send", "args": []}` + "\n"
	in := line + "\n" + line + strings.Replace(line, `"args"`, `"queue": "closed", "args"`, 1) + line
	out, errs, code := sh.call(in, nil, "enqueue", "-", "-o", "id")
	if code != exitRefused || strings.Count(out, "\n") != 2 || !strings.Contains(errs,
		"line 4: queue draining") ||
		!strings.Contains(errs, "--from 4; stored before it: 2 jobs") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	sh.run("ojs queues resume closed")
	if out, errs, code := sh.call(in, nil, "enqueue", "-", "--from", "4"); out != "2 jobs enqueued\n" {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// A stop by a signal has an exit code of its own.
func TestInterrupted(t *testing.T) {
	sh := newShell(t, onMemory, false)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	p := program{env: environment("OJS_STORAGE", "memory"), in: strings.NewReader(""), out: new(bytes.Buffer),
		errs: new(bytes.Buffer), clock: sh.shop.clock, storage: sh.shop.st}
	if code := p.run(ctx, []string{"jobs"}); code != exitInterrupted {
		t.Error(code)
	}
}

// reading is an input that ends with a channel. It calls a function when it is read
// again.
type reading struct {
	text  io.Reader
	again func()
	ended chan struct{}
}

func (r *reading) Read(p []byte) (int, error) {
	if n, err := r.text.Read(p); err == nil {
		return n, nil
	}
	r.again()
	<-r.ended
	return 0, io.EOF
}

// A long table is written in pieces, with its titles once and its foot at the end.
func TestLongTable(t *testing.T) {
	mostRows = 2
	t.Cleanup(func() { mostRows = 1000 })
	sh := newShell(t, onMemory, true)
	for limit, lines := range map[string]int{"0": 23, "4": 6, "3": 5} {
		out := sh.run("ojs jobs -n " + limit)
		if strings.Count(out, "\n") != lines || strings.Count(out, "STATE") != 1 {
			t.Error(out)
		}
	}
}

// A limit of 0 shows all.
func TestLimitZero(t *testing.T) {
	sh := newShell(t, onMemory, true)
	for _, verb := range []string{"failures", "workflows", "dead"} {
		if out := sh.run("ojs " + verb + " -o id -n 0"); strings.Count(out, "\n") < 2 {
			t.Errorf("%s: %s", verb, out)
		}
	}
}

// Jobs that would be lost with the command are refused.
func TestMemoryIsRefused(t *testing.T) {
	sh := &shell{t: t, shop: &shop{clock: clock.NewMock()}, address: "memory"}
	if out := sh.run("ojs enqueue email.send"); !strings.Contains(out, "lost when the command ends") {
		t.Error(out)
	}
}

// A signal ends a verb that waits for input. It says what was done and how to continue.
func TestInterruptedInput(t *testing.T) {
	for args, says := range map[string]string{
		"enqueue - --batch 1 -o id": "--from 2; stored before it: 1 job",
		"retry -":                   "",
		"import":                    "run the import again",
	} {
		sh := newShell(t, onMemory, false)
		line := `{"type": "email.send", "args": []}` + "\n"
		if args == "import" {
			sh.shop.enqueue("email.send", nil)
			sh.run("ojs queues pause --all")
			importBatch = 1
			t.Cleanup(func() { importBatch = 500 })
			line, _, _ = strings.Cut(sh.run("ojs export"), `{"next":{"jobs":1`)
			line, _, _ = strings.Cut(line, `{"end":`)
		}
		ctx, stop := context.WithCancel(context.Background())
		out, errs := new(output), new(bytes.Buffer)
		again := func() {
			for begun := args == "retry -"; !begun; runtime.Gosched() {
				states, _ := sh.shop.st.QueueStates(ctx)
				begun = out.String() != "" || states[queueImport] != ""
			}
			stop()
		}
		ended := make(chan struct{})
		defer close(ended)
		in := &reading{strings.NewReader(line), again, ended}
		p := program{env: environment("OJS_STORAGE", "memory"), in: in,
			out: out, errs: errs, clock: sh.shop.clock, storage: sh.shop.st}
		code := p.run(ctx, strings.Fields(args))
		if code != exitInterrupted || !strings.Contains(errs.String(), says) {
			t.Errorf("ojs %s: %d %q", args, code, errs)
		}
	}
}

// lossy is a storage that stores a batch and then loses its connection.
type lossy struct{ storage.Storage }

func (l lossy) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	_, err := l.Storage.Insert(ctx, now, batch, dst)
	return nil, errors.Join(errors.New("connection lost"), err)
}

// After an error that leaves open whether a batch is stored, an id of it tells.
func TestEnqueueUnknown(t *testing.T) {
	sh := newShell(t, onMemory, false)
	whole := sh.shop.st
	sh.shop.st = lossy{whole}
	line := `{"type": "email.send", "args": []}` + "\n"
	_, errs, code := sh.call(line+"\n"+line, nil, "enqueue", "-")
	if code != exitFailed || !strings.Contains(errs, "lines 1 to 3 may be stored") ||
		!strings.Contains(errs, "--from 4") || !strings.Contains(errs, "--from 1") {
		t.Errorf("%d %s", code, errs)
	}
	if out := sh.run("ojs enqueue email.send"); !strings.Contains(out, "run it again with --id 0") {
		t.Error(out)
	}
	_, id, _ := strings.Cut(errs, "if ojs job ")
	id, _, _ = strings.Cut(id, " ")
	sh.shop.st = whole
	if out := sh.run("ojs job " + id); !strings.Contains(out, "email.send") {
		t.Error(out)
	}
}

// A flag counts before its variable, and that before the file. Secrets are not shown.
func TestSettings(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, ".config", "ojs.env")
	other := filepath.Join(home, "other.env")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file,
		"# settings\nOJS_STORAGE=\"postgres://ada:hunter2@db/shop?sslpassword=hunter3\"\nOJS_OUTPUT=ndjson\nOJS_TOKEN=hunter4\nPGHOST=db\n")
	write(other, "OJS_STORAGE=other.db\n")
	sh := newShell(t, onMemory, false)
	config := func(args ...string) string {
		p := program{env: environment("HOME", home, "OJS_LISTEN", "127.0.0.1:9", "OJS_OUTPUT", ""),
			out:  new(bytes.Buffer),
			errs: new(bytes.Buffer), in: strings.NewReader(""), clock: sh.shop.clock}
		if code := p.run(context.Background(), append([]string{"config"}, args...)); code != 0 {
			t.Fatal(p.errs)
		}
		return p.out.(*bytes.Buffer).String()
	}
	out := config()
	for _, want := range []string{
		`{"name":"OJS_CONFIG","flag":"--config","value":"` + file + `","from":"default"}`,
		`"value":"postgres://ada:xxxxx@db/shop?sslpassword=xxxxx","from":"` + file + `"`,
		`{"name":"OJS_LISTEN","flag":"--listen","value":"127.0.0.1:9","from":"environment"}`,
		`{"name":"OJS_OUTPUT","flag":"--output","value":"ndjson","from":"` + file + `"}`,
		`{"name":"OJS_COLOR","flag":"--color","value":"auto","from":"default"}`,
		`{"name":"OJS_TOKEN","value":"(set)","from":"` + file + `"}`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if strings.Contains(out, "hunter") {
		t.Error(out)
	}
	for _, address := range []string{"postgres://ada@db/shop?sslpassword=hunter5;x=%",
		"host=db password=hunter5"} {
		if out := config("--storage", address); strings.Contains(out, "hunter") {
			t.Error(out)
		}
	}
	if out := config("--storage", "a.db", "-o", "json"); !strings.Contains(out,
		`"value": "a.db",`+"\n    \"from\": \"flag\"") {
		t.Error(out)
	}
	if out := config("--config", other); !strings.Contains(out, "other.db") || !strings.Contains(out,
		"flag") {
		t.Error(out)
	}
	for text, says := range map[string]string{"OJS_STORGE=x\n": ":1: there is no setting OJS_STORGE",
		"nonsense\n": ":1: a line is"} {
		write(other, text)
		_, errs, code := sh.call("", []string{"OJS_CONFIG", other}, "stats")
		if code != exitUsage || !strings.Contains(errs, says) {
			t.Errorf("%q: %d %s", text, code, errs)
		}
	}
	if _, errs, code := sh.call("", []string{"OJS_CONFIG", other + "x"}, "stats"); code != exitUsage {
		t.Errorf("a file that is named and missing: %d %s", code, errs)
	}
}

// A second scan of tail shows only what has happened since.
func TestTailGoesOn(t *testing.T) {
	sh := newShell(t, onMemory, true)
	p := &program{env: environment(), clock: sh.shop.clock, storage: sh.shop.st}
	c := &call{program: p, ctx: context.Background(), flags: &flags{Storage: "memory"}}
	jobs, err := c.jobs()
	if err != nil {
		t.Fatal(err)
	}
	tl := tail{call: c, jobs: jobs, q: storage.Query{}, begin: noon, from: noon,
		shown: make(map[happening]bool)}
	look := func() (whats []string) {
		list, err := tl.scan()
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range list {
			whats = append(whats, h.Type+" "+h.What)
		}
		return whats
	}
	if got := look(); len(got) != 0 {
		t.Error(got)
	}
	sh.shop.enqueue("cart.expire", nil)
	if got := strings.Join(look(), ", "); got != "cart.expire enqueued" {
		t.Error(got)
	}
	sh.shop.clock.Add(time.Second)
	rec := sh.shop.claim("w", "cart.expire")
	if got := strings.Join(look(), ", "); got != "cart.expire started" {
		t.Error(got)
	}
	sh.shop.end(rec, time.Minute, ojs.StateCompleted, "", "")
	if got := strings.Join(look(), ", "); got != "cart.expire completed" {
		t.Error(got)
	}
}
