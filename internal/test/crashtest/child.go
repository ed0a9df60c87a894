package crashtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
)

// The orders of a child, in its environment.
const (
	envRole      = "OJS_CRASH_ROLE"
	envAt        = "OJS_CRASH_AT"
	envJournal   = "OJS_CRASH_JOURNAL"
	envDisturbed = "OJS_CRASH_DISTURBED"
	envFaults    = "OJS_CRASH_FAULTS"
)

// The roles of children.
const (
	worker   = "worker"
	producer = "producer"
	both     = "both" // which produces until it is written a line
)

// unexpected begins what a child reports that must not happen, disturbed or not.
const unexpected = "unexpected: "

// InTx calls f with a context that carries a transaction, and commits it if f returns
// nil.
type InTx func(ctx context.Context, f func(ctx context.Context) error) error

// Child is for TestMain to call first. In a process that Run has started it is the
// process, and does not return. The function begin returns how a storage begins
// transactions.
func Child(open Open, begin func(s storage.Storage) InTx) {
	role := os.Getenv(envRole)
	if role == "" {
		return
	}
	if err := child(role, open, begin); err != nil {
		fmt.Fprintf(os.Stderr, "%s%s: %v\n", unexpected, role, err)
	}
	os.Exit(1) // it should have been killed
}

func child(role string, open Open, begin func(s storage.Storage) InTx) error {
	producing, stop := context.WithCancel(context.Background())
	go func() { // an orphan ends
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	log := slog.New(quiet{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})})
	slog.SetDefault(log)
	ctx := context.Background()
	disturbed, faults := os.Getenv(envDisturbed) != "", os.Getenv(envFaults) != ""
	s, _, err := open(ctx, os.Getenv(envAt))
	for disturbed && err != nil {
		<-wall.After(lookEvery)
		s, _, err = open(ctx, os.Getenv(envAt))
	}
	if err != nil {
		return err
	}
	if role == holder {
		return hold(ctx, s, log)
	}
	j, err := openJournal(os.Getenv(envJournal))
	if err != nil {
		return err
	}
	eng, err := engine.New[task](s, engine.WithLogger(log), engine.WithConcurrency(8),
		engine.WithDefaults(defaults(faults)...),
		engine.WithRetention(engine.Retention{Completed: -1, Cancelled: -1, Discarded: -1, DeadLetters: -1,
			MaxFinished: -1, MaxDeadLetters: -1}))
	if err != nil {
		return err
	}
	handle(eng, j, begin(s))
	pause := time.Duration(0)
	if faults {
		pause = pauseTime
	}
	switch role {
	case producer:
		return produce(ctx, eng, j, disturbed, pause)
	case both:
		go func() {
			if err := produce(producing, eng, j, disturbed, pause); err != nil {
				fmt.Fprintf(os.Stderr, "%s%s: %v\n", unexpected, role, err)
			}
		}()
	}
	return eng.Run(ctx)
}

// quiet leaves out the ends of jobs and of processes, which are expected.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "attempt failed" || strings.HasPrefix(r.Message, "process is silent") ||
		strings.HasPrefix(r.Message, "job ") {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(as []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(as)} }
func (q quiet) WithGroup(name string) slog.Handler    { return quiet{q.Handler.WithGroup(name)} }
