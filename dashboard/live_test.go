package dashboard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// listen opens a stream and returns its events.
func listen(t *testing.T, address string) (events <-chan string, stop context.CancelFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/live/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(resp.Header)
	}
	out := make(chan string, 100)
	go func() {
		defer close(out)
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				out <- event
			}
		}
	}()
	return out, stop
}

func (s *site) streams() int {
	s.pages.live.mu.Lock()
	defer s.pages.live.mu.Unlock()
	if s.pages.live.stop == nil {
		return 0
	}
	return len(s.pages.live.streams)
}

func (s *site) wait(streams int) {
	for s.streams() != streams {
		runtime.Gosched()
	}
}

// tick moves the clock on until a tick comes.
func (s *site) tick(events <-chan string) {
	s.t.Helper()
	for {
		s.clock.Add(time.Second)
		select {
		case event := <-events:
			if event != "tick" {
				s.t.Errorf("the event %q", event)
			}
			return
		default:
		}
	}
}

func TestLive(t *testing.T) {
	s := newSite(t)
	server := httptest.NewServer(s.pages)
	defer server.Close()
	if s.streams() != 0 {
		t.Error("a poller works without a stream")
	}
	one, stopOne := listen(t, server.URL)
	two, stopTwo := listen(t, server.URL)
	s.wait(2)
	s.tick(one)
	<-two
	stopOne()
	s.wait(1)
	stopTwo()
	s.wait(0)
	three, stopThree := listen(t, server.URL)
	defer stopThree()
	s.wait(1)
	s.tick(three)
	if err := s.pages.Close(); err != nil {
		t.Fatal(err)
	}
	for range three { // Close ends the stream
	}
}

// A change shows within a second. Without one a tick comes after ten seconds.
func TestLiveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng, err := engine.New[any](memory.New(), engine.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := New(eng, WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		ticks, leave := pages.join()
		next := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			if <-ticks; time.Since(began) != want {
				t.Errorf("a tick comes after %v, want %v", time.Since(began), want)
			}
		}
		next(time.Second) // the first look
		if _, err := eng.Enqueue(t.Context(), "t", 1); err != nil {
			t.Fatal(err)
		}
		next(time.Second)
		next(10 * time.Second)
		leave()
		if err := pages.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAssetsAreSmall(t *testing.T) {
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	zip := gzip.NewWriter(&all)
	for _, f := range files {
		b, err := assetFiles.ReadFile("assets/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := zip.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil || all.Len() > 14<<10 {
		t.Errorf("the assets have %d bytes compressed: %v", all.Len(), err)
	}
	t.Logf("%d bytes compressed", all.Len())
}

// A process has a bounded number of streams.
func TestStreamsAreBounded(t *testing.T) {
	s := newSite(t)
	openStreams.Add(maxStreams)
	defer openStreams.Add(-maxStreams)
	if w := s.get("/live/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one more stream: %d", w.Code)
	}
}
