package bindingtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage"
)

// childOf is the variable that says which storage a process serves.
const childOf = "OJS_TEST_BINDING"

// Open opens the storage of a name. release frees what Close does not.
type Open = func(ctx context.Context, name string) (st storage.Storage, release func(), err error)

// Child is for TestMain to call first. In a process that Kill has started it serves the
// binding, and does not return.
func Child(open Open) {
	name := os.Getenv(childOf)
	if name == "" {
		return
	}
	if err := serveChild(name, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveChild serves a storage until the input ends, which the parent does with its life.
func serveChild(name string, open Open) error {
	st, _, err := open(context.Background(), name)
	if err != nil {
		return err
	}
	eng, err := engine.New[any](st, append(server.EngineOptions(),
		engine.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		return err
	}
	go eng.Run(context.Background())
	srv, err := server.New(eng)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go server.HTTPServer(srv).Serve(l)
	fmt.Println("http://" + l.Addr().String())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// Kill runs two servers on the storage of a name, each in a process of its own, and kills
// one with requests under way. All that was acknowledged is there, each request with an
// idempotency key has run once, and each job was completed once (F117).
func Kill(t *testing.T, name string, st storage.Storage) {
	k := &killing{t: t, st: st, busy: make(chan struct{}), stored: make(map[string]bool),
		completed: make(map[string]int)}
	for i := range k.urls {
		k.start(i, name)
	}
	var clients sync.WaitGroup
	for n := range 6 {
		clients.Go(func() { k.client(n) })
	}
	ended := make(chan struct{})
	go func() {
		clients.Wait()
		close(ended)
	}()
	select {
	case <-k.busy:
	case <-ended: // with an error
	}
	if err := k.children[0].Process.Kill(); err != nil {
		t.Error(err)
	}
	k.children[0].Wait()
	k.endClaims()
	k.killed.Store(true)
	<-ended
	if !t.Failed() {
		k.check()
	}
}

type killing struct {
	t        *testing.T
	st       storage.Storage
	urls     [2]string
	children [2]*exec.Cmd
	done     atomic.Int32  // requests
	busy     chan struct{} // closed when so many were done that one server may be killed
	killed   atomic.Bool

	mu        sync.Mutex // guards what follows
	stored    map[string]bool
	completed map[string]int
}

func (k *killing) start(i int, name string) {
	k.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childOf+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.children[i] = cmd
	k.t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		k.t.Fatal(err)
	}
	k.urls[i] = strings.TrimSpace(line)
}

// endClaims lets the minute pass in which the keys of the killed server's requests are
// under way.
func (k *killing) endClaims() {
	store := k.st.(storage.DocumentStore)
	list, err := store.Documents(context.Background(), storage.KindValue,
		storage.DocumentQuery{Prefix: "server/once/"})
	if err != nil {
		k.t.Error(err)
	}
	for _, d := range list {
		var v map[string]any
		if json.Unmarshal(d.Data, &v) != nil || v["until"] == nil { // a piece of an answer, or an answer
			continue
		}
		v["until"] = "2000-01-01T00:00:00Z"
		d.Data, _ = json.Marshal(v)
		if _, err := store.PutDocuments(context.Background(), storage.KindValue,
			[]storage.Document{d}); err != nil {
			k.t.Error(err)
		}
	}
}

// client makes requests until some after the kill.
func (k *killing) client(n int) {
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	for i, after := 0, 0; after < 10 && !k.t.Failed(); i++ {
		if k.killed.Load() {
			after++
		}
		key := fmt.Sprintf("%d-%d", n, i)
		id := uuid.Must(uuid.NewV7()).String()
		switch i % 3 {
		case 0:
			_, a := k.call(c, n+i, "/jobs/bulk", key,
				`{"jobs":[{"type":"a","args":[1]},{"type":"a","args":[2]}]}`, 201)
			items, _ := a["items"].([]any)
			if len(items) != 2 {
				k.t.Errorf("F117: %v", a)
			}
			for _, item := range items {
				k.note(item.(map[string]any)["job"].(map[string]any)["id"])
			}
		case 1:
			k.call(c, n+i, "/jobs", "", `{"type":"a","args":[],"id":"`+id+`"}`, 201, 409) // 409: it is stored
			k.note(id)
		case 2:
			_, a := k.call(c, n+i, "/workers/fetch", "",
				fmt.Sprintf(`{"queues":["default"],"count":2,"worker_id":"w%d"}`, n), 200)
			for _, job := range a["jobs"].([]any) {
				k.complete(c, n, i, job.(map[string]any))
			}
		}
		if k.done.Add(1) == 60 {
			close(k.busy)
		}
	}
}

func (k *killing) note(id any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stored[fmt.Sprint(id)] = true
}

// complete settles a job, at any of the servers.
func (k *killing) complete(c *http.Client, n, i int, job map[string]any) {
	body := fmt.Sprintf(`{"job_id":%q,"worker_id":"w%d","attempt":%v}`, job["id"], n, job["attempt"])
	status, a := k.call(c, n+i+1, "/workers/ack", "", body, 200, 409)
	if status == 409 { // by the call before, whose answer is lost
		details := a["error"].(map[string]any)["details"].(map[string]any)
		if details["current_state"] != "completed" {
			k.t.Errorf("F069: %v", a)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.completed[fmt.Sprint(job["id"])]++
}

// call makes a request at one server or the other, until it is answered with one of the
// statuses.
func (k *killing) call(c *http.Client, at int, path, key, body string, wanted ...int) (int, map[string]any) {
	for try := range 2000 {
		url := k.urls[(at+try)%2]
		if k.killed.Load() {
			url = k.urls[1]
		}
		req, err := http.NewRequest(http.MethodPost, url+"/ojs/v1"+path, bytes.NewReader([]byte(body)))
		if err != nil {
			k.t.Error(err)
			return 0, nil
		}
		req.Header.Set("Content-Type", "application/json")
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := c.Do(req)
		if err != nil { // the server has been killed
			pace.Work(time.Millisecond)
			continue
		}
		var answer map[string]any
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil {
			continue
		}
		for _, status := range wanted {
			if resp.StatusCode == status {
				return status, answer
			}
		}
		pace.Work(5 * time.Millisecond) // the key's request is under way
		if k.killed.Load() && try%50 == 49 {
			k.endClaims() // of a write that the storage did after the kill
		}
	}
	k.t.Errorf("%s has no answer", path)
	return 0, map[string]any{"jobs": []any{}}
}

func (k *killing) check() {
	there, acked := 0, 0
	for q := (storage.Query{}); ; {
		page, err := k.st.List(context.Background(), q)
		if err != nil {
			k.t.Fatal(err)
		}
		for i := range page.Records {
			rec := &page.Records[i]
			there++
			if !k.stored[rec.ID] {
				k.t.Errorf("F117: job %s is of a request that has run twice", rec.ID)
			}
			if k.completed[rec.ID] > 0 {
				acked++
				if rec.State != ojs.StateCompleted {
					k.t.Errorf("F066: job %s was completed and is %s", rec.ID, rec.State)
				}
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if there != len(k.stored) || acked != len(k.completed) {
		k.t.Errorf("F199: stored are %d of %d jobs, and %d of %d that were completed", there, len(k.stored),
			acked, len(k.completed))
	}
	for id, n := range k.completed {
		if n > 1 {
			k.t.Errorf("F062: job %s was handed out %d times", id, n)
		}
	}
}
