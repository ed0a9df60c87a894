package server_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/storage/memory"
)

const benchJob = `{"type":"email.send","args":[{"to":"a@example.com","n":7}],"options":{"queue":"mail"}}`

// benchServer serves an engine over memory, or, as the floor, a handler that only
// answers.
func benchServer(b *testing.B, floor bool) (url string, c *http.Client) {
	b.Helper()
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/openjobspec+json")
		_, _ = io.WriteString(w, `{"job":{"id":"00dc6acf-ac00-7001-a9ba-58c435477cdc"}}`)
	})
	if !floor {
		st := memory.New()
		eng, err := engine.New[any](st, append(server.EngineOptions(),
			engine.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- eng.Run(ctx) }()
		b.Cleanup(func() { stop(); <-ended; st.Close() })
		srv, err := server.New(eng)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { srv.Close(context.Background()) })
		h = srv
	}
	s := httptest.NewServer(h)
	b.Cleanup(s.Close)
	c = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	b.Cleanup(c.CloseIdleConnections)
	return s.URL + "/ojs/v1", c
}

func post(b *testing.B, c *http.Client, url, body string) []byte {
	resp, err := c.Post(url, "application/openjobspec+json", strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		b.Errorf("%d %v %s", resp.StatusCode, err, answer)
	}
	return answer
}

func parallel(b *testing.B, f func()) {
	b.SetParallelism(4)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f()
		}
	})
}

func BenchmarkFloor(b *testing.B) {
	url, c := benchServer(b, true)
	parallel(b, func() { post(b, c, url+"/jobs", benchJob) })
}

func BenchmarkEnqueue(b *testing.B) {
	url, c := benchServer(b, false)
	parallel(b, func() { post(b, c, url+"/jobs", benchJob) })
}

func BenchmarkFetchAck(b *testing.B) {
	url, c := benchServer(b, false)
	for n := b.N + 16; n > 0; n -= 1000 {
		post(b, c, url+"/jobs/batch", `{"jobs":[`+strings.TrimSuffix(strings.Repeat(benchJob+",", 1000),
			",")+`]}`)
	}
	parallel(b, func() {
		var got struct{ Jobs []struct{ ID string } }
		if err := json.Unmarshal(post(b, c, url+"/workers/fetch", `{"queues":["mail"]}`), &got); err != nil ||
			len(got.Jobs) != 1 {
			b.Error(err)
			return
		}
		post(b, c, url+"/workers/ack", `{"job_id":"`+got.Jobs[0].ID+`"}`)
	})
}

func BenchmarkBatch500(b *testing.B) {
	url, c := benchServer(b, false)
	body := `{"jobs":[` + strings.TrimSuffix(strings.Repeat(benchJob+",", 500), ",") + `]}`
	parallel(b, func() { post(b, c, url+"/jobs/batch", body) })
}
