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
	"time"
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

// next moves the clock on, second by second, until a tick comes.
func (s *site) next(events <-chan string) (seconds int) {
	s.t.Helper()
	for seconds = 1; seconds <= 60; seconds++ {
		s.clock.Add(time.Second)
		select {
		case event := <-events:
			if event != "tick" {
				s.t.Errorf("the event %q", event)
			}
			return seconds
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.t.Fatal("no tick has come")
	return 0
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
	s.next(one) // the first look
	<-two
	s.enqueue("t", 1)
	if n := s.next(one); n > 3 {
		t.Errorf("a change shows after %d seconds", n)
	}
	<-two
	if n := s.next(one); n < 5 || n > 12 {
		t.Errorf("without a change a tick comes after %d seconds, want about 10", n)
	}
	stopOne()
	s.wait(1)
	stopTwo()
	s.wait(0)
	three, stopThree := listen(t, server.URL)
	defer stopThree()
	s.wait(1)
	s.next(three)
	if err := s.pages.Close(); err != nil {
		t.Fatal(err)
	}
	for range three { // Close ends the stream
	}
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
		if strings.HasSuffix(f.Name(), ".js") && len(b) > 10<<10 {
			t.Errorf("%s has %d bytes", f.Name(), len(b))
		}
		if _, err := zip.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil || all.Len() > 40<<10 {
		t.Errorf("the assets have %d bytes compressed: %v", all.Len(), err)
	}
	t.Logf("%d bytes compressed", all.Len())
}
