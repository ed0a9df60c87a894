// Quickstart checksums every file under a directory, one job per file: files that cannot
// be read become dead letters, files that vanish meanwhile are discarded, and other
// errors are retried.
//
//	go run ./examples/quickstart [-print] [dir]
//
// The exit status is 1 if a file could not be checksummed.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage/memory"
)

// File is what a job needs to know, Sum what it finds out.
type (
	File struct{ Path string }
	Sum  struct {
		SHA256 string
		Bytes  int64
	}
)

// Checksum is the job type. A file gets five attempts within a few seconds, and then a
// person's attention.
var Checksum = ojs.Define[File]("file.checksum", ojs.WithRetry(ojs.RetryPolicy{
	MaxAttempts:     5,
	InitialInterval: 200 * time.Millisecond,
	OnExhaustion:    ojs.ExhaustionDeadLetter,
}))

func main() {
	list := flag.Bool("print", false, "print the checksum of every file")
	flag.Parse()
	dir := "."
	if flag.NArg() > 0 {
		dir = flag.Arg(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	p := program{out: os.Stdout, list: *list}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		p.progress = os.Stderr
	}
	dead, err := p.run(ctx, os.DirFS(dir))
	if err != nil {
		fmt.Fprintf(os.Stderr, "quickstart: %s: %v\n", dir, err)
	}
	if err != nil || dead > 0 {
		stop()
		os.Exit(1)
	}
}

type program struct {
	out      io.Writer
	progress io.Writer // a terminal, or nil
	list     bool
}

// run checksums the files of fsys and reports on them. It returns how many jobs are dead.
func (p program) run(ctx context.Context, fsys fs.FS) (dead int, err error) {
	eng, err := engine.New[any](memory.New(), engine.WithLogger(slog.New(slog.DiscardHandler)),
		engine.WithRetention(engine.Retention{MinAge: -1})) // outcomes are collected as they come
	if err != nil {
		return 0, err
	}
	eng.Register(handler.For(Checksum,
		handler.Returning(func(ctx context.Context, job *ojs.Job[File]) (Sum, error) {
			return checksum(ctx, fsys, job.Args.Path)
		})))

	running, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan error, 1)
	go func() { stopped <- eng.Run(running) }()
	defer func() {
		stopEngine()
		err = errors.Join(err, <-stopped)
	}()

	total, err := p.collect(ctx, eng, fsys)
	if err != nil {
		return 0, err
	}
	return total.dead, p.report(ctx, total, eng.DeadLetters())
}

// window is how many jobs may have been enqueued whose outcomes have not been collected.
// It bounds the memory for any number of files, and is below the number of finished jobs
// that an engine keeps (engine.Retention): no outcome is deleted before it is collected.
const window = 4096

// collect enqueues a job for every file and collects the outcomes meanwhile, in the same
// order.
func (p program) collect(ctx context.Context, q ojs.Enqueuer, fsys fs.FS) (total totals, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tickets := make(chan ojs.Ticket, window)
	walked := make(chan error, 1)
	var found atomic.Int64
	go func() {
		defer close(tickets)
		walked <- walk(fsys, ".", func(path string) error {
			ticket, err := Checksum.Enqueue(ctx, q, File{Path: path})
			if err != nil {
				return err
			}
			found.Add(1)
			select {
			case tickets <- ticket:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	for ticket := range tickets {
		job, waitErr := ticket.Wait(ctx)
		if ended := (*ojs.EndedError)(nil); waitErr != nil && !errors.As(waitErr, &ended) {
			err = waitErr
		} else {
			err = p.add(&total, job)
		}
		if err != nil {
			cancel()
			<-walked
			return total, err
		}
		p.show(total.files, int(found.Load()))
	}
	if p.progress != nil && total.files > 0 {
		fmt.Fprintf(p.progress, "\r%d of %d files\n", total.files, found.Load())
	}
	return total, <-walked
}

// walk calls f with every regular file under dir, and with what cannot be listed: the job
// of that fails, and its failure tells why. Directories are read in pieces, so that a
// large one takes no more memory than a small one.
func walk(fsys fs.FS, dir string, f func(path string) error) error {
	file, err := fsys.Open(dir)
	if err != nil {
		if dir == "." {
			return err
		}
		return f(dir)
	}
	defer file.Close()
	list, ok := file.(fs.ReadDirFile)
	if !ok {
		return fmt.Errorf("%s is not a directory", dir)
	}
	for {
		entries, err := list.ReadDir(1000)
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			switch {
			case entry.IsDir():
				if err := walk(fsys, name, f); err != nil {
					return err
				}
			case entry.Type().IsRegular():
				if err := f(name); err != nil {
					return err
				}
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && dir == ".":
			return err
		case err != nil:
			return f(dir)
		}
	}
}

func checksum(ctx context.Context, fsys fs.FS, path string) (Sum, error) {
	f, err := fsys.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Sum{}, ojs.Discard(err)
	case errors.Is(err, fs.ErrPermission):
		return Sum{}, ojs.DeadLetter(ojs.Errorf("file.unreadable", "%w", err))
	case err != nil:
		return Sum{}, ojs.Errorf("file.open", "%w", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, reader{ctx, f})
	if err != nil {
		return Sum{}, ojs.Errorf("file.read", "%w", err)
	}
	return Sum{SHA256: hex.EncodeToString(h.Sum(nil)), Bytes: n}, nil
}

// reader stops reading when ctx ends.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// totals is what the jobs have come to.
type totals struct {
	files, completed, vanished, dead, retries int
	bytes                                     int64
}

// add counts a job that has ended.
func (p program) add(t *totals, job *ojs.JobInfo) error {
	t.files++
	t.retries += max(job.Attempt-1, 0)
	switch {
	case job.DeadLettered():
		t.dead++
	case job.State != ojs.StateCompleted:
		t.vanished++
	default:
		var sum Sum
		if err := job.DecodeResult(&sum); err != nil {
			return err
		}
		t.completed++
		t.bytes += sum.Bytes
		if p.list {
			file, err := Checksum.Decode(job)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s  %s\n", sum.SHA256, file.Path)
		}
	}
	return nil
}

// show shows how many of the files that have been found are done, at every hundredth of
// them.
func (p program) show(done, found int) {
	if p.progress != nil && done%max(found/100, 1) == 0 {
		fmt.Fprintf(p.progress, "\r%d of %d files found so far", done, found)
	}
}

func (p program) report(ctx context.Context, t totals, dead *operate.DeadLetters) error {
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "files\tchecksummed\tbytes\tretries\tvanished\tdead\t\n")
	fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t\n", t.files, t.completed, t.bytes, t.retries,
		t.vanished, t.dead)
	if err := table.Flush(); err != nil || t.dead == 0 {
		return err
	}
	fmt.Fprintln(p.out, "\ndead letters:")
	listed := 0
	for job, err := range dead.List(ctx, inspect.Filter{}) {
		if err != nil {
			return err
		}
		file, err := Checksum.Decode(job)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "  %s: %s after %d attempts: %s\n", file.Path, job.Error.Type, job.Attempt,
			job.Error.Message)
		listed++
	}
	if listed < t.dead { // retention keeps so many dead letters
		fmt.Fprintf(p.out, "  and %d before them\n", t.dead-listed)
	}
	return nil
}
