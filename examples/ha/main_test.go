//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// printed is what a program has printed.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// after returns what was printed after a text, "" if that was not printed yet.
func (p *printed) after(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, after, _ := strings.Cut(p.text.String(), text)
	return after
}

// The jobs go on when the primary is killed, and none is lost.
func TestKill(t *testing.T) {
	if os.Getenv("OJS_PATRONI") == "" {
		t.Skip("it needs Patroni and half a minute: set OJS_PATRONI=1")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	in, keys := io.Pipe()
	var out printed
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, in, &out) }()
	await := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s: not in three minutes\n%s", what, out.text.String())
			}
		}
	}
	await("a primary", func() bool { return strings.Contains(out.after("Enter kills"), "is the primary") })
	fmt.Fprintln(keys)
	await("another primary", func() bool {
		return strings.Contains(out.after("is killed"), "is the primary")
	})
	fmt.Fprintln(keys)
	await("more jobs", func() bool {
		lines := strings.Split(strings.TrimSpace(out.after("starts\n")), "\n")
		var node, acknowledged, ran int
		_, err := fmt.Sscanf(lines[len(lines)-1], "n%d is the primary: %d jobs acknowledged, %d runs", &node,
			&acknowledged, &ran)
		return err == nil && len(lines) > 3 && ran >= acknowledged
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Log(out.text.String())
}
