package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/internal/test/pace"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/memory"
)

// The benchmarks ask a server in a process of its own, whose processor time they report
// for each request (cpu-us/op). So a busy machine changes little.

const benchJob = `{"type":"email.send","args":[{"to":"a@example.com","n":7}],"options":{"queue":"mail"}}`

// benchKind is the variable that makes a process a server for benchmarks: "server" has an
// engine over memory, and "floor" only answers.
const benchKind = "OJS_TEST_BENCH"

// benchChild is for TestMain to call first.
func benchChild() {
	kind := os.Getenv(benchKind)
	if kind == "" {
		return
	}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/openjobspec+json")
		_, _ = io.WriteString(w, `{"job":{"id":"00dc6acf-ac00-7001-a9ba-58c435477cdc"}}`)
	})
	if kind == "server" {
		eng, err := engine.New[any](memory.New(), append(server.EngineOptions(),
			engine.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			panic(err)
		}
		go eng.Run(context.Background())
		if h, err = server.New(eng); err != nil {
			panic(err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/ojs/", h)
	mux.Handle("/debug/", http.DefaultServeMux) // its profiles
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("http://" + l.Addr().String())
	go http.Serve(l, mux)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
	os.Exit(0)
}

// benched is a server in another process.
type benched struct {
	b      *testing.B
	url    string
	client *http.Client
	pid    int
}

func benchServer(b *testing.B, kind string) *benched {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchKind+"="+kind)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	b.Cleanup(func() { in.Close(); cmd.Wait(); c.CloseIdleConnections() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return &benched{b, strings.TrimSpace(line) + "/ojs/v1", c, cmd.Process.Pid}
}

func (s *benched) post(path, body string) []byte {
	resp, err := s.client.Post(s.url+path, "application/openjobspec+json", strings.NewReader(body))
	if err != nil {
		s.b.Error(err)
		return nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		s.b.Errorf("%d %v %s", resp.StatusCode, err, answer)
	}
	return answer
}

// run calls f from 8 goroutines at a time.
func (s *benched) run(f func()) {
	s.b.SetParallelism(4)
	before := pgtest.ProcessorTime(s.pid)
	s.b.ResetTimer()
	s.b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f()
		}
	})
	s.b.ReportMetric((pgtest.ProcessorTime(s.pid)-before)*1e6/float64(s.b.N), "cpu-us/op")
}

func BenchmarkFloor(b *testing.B) {
	s := benchServer(b, "floor")
	s.run(func() { s.post("/jobs", benchJob) })
}

func BenchmarkEnqueue(b *testing.B) {
	s := benchServer(b, "server")
	s.run(func() { s.post("/jobs", benchJob) })
}

func batch(n int) string {
	return `{"jobs":[` + strings.TrimSuffix(strings.Repeat(benchJob+",", n), ",") + `]}`
}

func BenchmarkFetchAck(b *testing.B) {
	s := benchServer(b, "server")
	for n := b.N + 16; n > 0; n -= 1000 {
		s.post("/jobs/batch", batch(1000))
	}
	s.run(func() {
		var got struct{ Jobs []struct{ ID string } }
		answer := s.post("/workers/fetch", `{"queues":["mail"],"worker_id":"w"}`)
		if err := json.Unmarshal(answer, &got); err != nil || len(got.Jobs) != 1 {
			b.Error(err)
			return
		}
		s.post("/workers/ack", `{"job_id":"`+got.Jobs[0].ID+`"}`)
	})
}

func BenchmarkBatch500(b *testing.B) {
	s, body := benchServer(b, "server"), batch(500)
	s.run(func() { s.post("/jobs/batch", body) })
}

// BenchmarkLongPoll reports the median time from the begin of an enqueue until a worker
// that waits has the job.
func BenchmarkLongPoll(b *testing.B) {
	s := benchServer(b, "server")
	var took []float64 // ms
	for b.Loop() {
		delivered := make(chan time.Time)
		go func() {
			s.post("/workers/fetch", `{"queues":["mail"],"worker_id":"w","wait_ms":30000}`)
			delivered <- time.Now()
		}()
		pace.Work(5 * time.Millisecond) // until the fetch waits
		began := time.Now()
		s.post("/jobs", benchJob)
		took = append(took, float64((<-delivered).Sub(began))/1e6)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-ms")
}

// BenchmarkWaiting reports the memory of 200,000 waiting jobs.
func BenchmarkWaiting(b *testing.B) {
	for b.Loop() {
		s, body := benchServer(b, "server"), batch(1000)
		before := s.resident()
		for range 200 {
			s.post("/jobs/batch", body)
		}
		b.ReportMetric(float64(s.resident()-before)/(1<<20), "MiB")
		b.ReportMetric(float64(s.resident())/(1<<20), "MiB-resident")
	}
}

// resident is the memory of the server, after a collection.
func (s *benched) resident() (bytes int64) {
	resp, err := s.client.Get(strings.TrimSuffix(s.url, "/ojs/v1") + "/debug/pprof/heap?gc=1")
	if err != nil {
		s.b.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.pid))
	if err != nil {
		s.b.Skip(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		s.b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
