// Package joblog keeps what the handler of a job logs.
//
// # Invariants
//
//  1. Lines are complete JSON objects, each ended by a newline.
//  2. They have Max bytes at most. The oldest are cut, and counted.
package joblog

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/ojsengine/ojs/internal/locks"
)

// Max is how many bytes of lines are kept.
const Max = 64 << 10

// Lines is what an attempt has logged. The zero Lines is empty and ready. It is safe for
// concurrent use.
type Lines struct {
	mu    locks.Mutex // guards the fields below
	buf   []byte
	start int // where the lines that are not cut begin
	cut   int
	n     uint64 // lines, those that were cut included
}

// Write adds a line, and cuts the oldest ones beyond the bound.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	if len(line) > Max {
		l.cut++
		return len(line), nil
	}
	l.buf = append(l.buf, line...)
	for len(l.buf)-l.start > Max {
		l.start += bytes.IndexByte(l.buf[l.start:], '\n') + 1
		l.cut++
	}
	if l.start > Max {
		l.buf = l.buf[:copy(l.buf, l.buf[l.start:])]
		l.start = 0
	}
	return len(line), nil
}

// List returns the lines as a JSON array, nil if there are none; how many there are, and
// how many were cut.
func (l *Lines) List() (array json.RawMessage, n, cut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) == l.start {
		return nil, 0, l.cut
	}
	kept, newline := l.buf[l.start:len(l.buf)-1], []byte("\n")
	array = append(json.RawMessage("["), bytes.ReplaceAll(kept, newline, []byte(","))...)
	return append(array, ']'), bytes.Count(kept, newline) + 1, l.cut
}

// N returns how many lines there were. Without Lines, it returns 0.
func (l *Lines) N() uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// Tee is the handler of a logger that writes to a log and, from a level on, to the lines.
// These have the time of now.
func (l *Lines) Tee(log slog.Handler, level slog.Level, now func() time.Time) slog.Handler {
	return slog.NewMultiHandler(timed{slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}), now}, log)
}

// timed is a handler of lines that have the time of now.
type timed struct {
	slog.Handler
	now func() time.Time
}

func (t timed) Handle(ctx context.Context, r slog.Record) error {
	r.Time = t.now()
	return t.Handler.Handle(ctx, r)
}

func (t timed) WithAttrs(as []slog.Attr) slog.Handler { return timed{t.Handler.WithAttrs(as), t.now} }

func (t timed) WithGroup(name string) slog.Handler { return timed{t.Handler.WithGroup(name), t.now} }
