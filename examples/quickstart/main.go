// Quickstart checksums every file under a directory, one job per file: files that cannot be read become dead letters,
// files that vanish meanwhile are discarded, and other errors are retried.
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
	"text/tabwriter"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
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

// Checksum is the job type. A file gets five attempts within a few seconds, and then a person's attention.
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
	eng, err := engine.New[any](memory.New(), engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return 0, err
	}
	eng.Register(handler.For(Checksum, handler.Returning(func(ctx context.Context, job *ojs.Job[File]) (Sum, error) {
		return checksum(ctx, fsys, job.Args.Path)
	})))

	running, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan error, 1)
	go func() { stopped <- eng.Run(running) }()
	defer func() {
		stopEngine()
		err = errors.Join(err, <-stopped)
	}()

	tickets, err := enqueue(ctx, eng, fsys)
	if err != nil {
		return 0, err
	}
	jobs, err := p.wait(ctx, tickets)
	if err != nil {
		return 0, err
	}
	return p.report(ctx, jobs, eng.DeadLetters())
}

// enqueue makes a job of every file. What cannot be listed gets a job, too: its failure tells why.
func enqueue(ctx context.Context, q ojs.Enqueuer, fsys fs.FS) ([]ojs.Ticket, error) {
	var tickets []ojs.Ticket
	err := fs.WalkDir(fsys, ".", func(path string, entry fs.DirEntry, err error) error {
		if path == "." && err != nil {
			return err
		}
		if err == nil && !entry.Type().IsRegular() {
			return nil
		}
		ticket, err := Checksum.Enqueue(ctx, q, File{Path: path})
		tickets = append(tickets, ticket)
		return err
	})
	return tickets, err
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

// wait waits for every job, however it ends.
func (p program) wait(ctx context.Context, tickets []ojs.Ticket) ([]*ojs.JobInfo, error) {
	jobs := make([]*ojs.JobInfo, len(tickets))
	for i, ticket := range tickets {
		job, err := ticket.Wait(ctx)
		if ended := (*ojs.EndedError)(nil); err != nil && !errors.As(err, &ended) {
			return nil, err
		}
		jobs[i] = job
		if done, before := 100*(i+1)/len(tickets), 100*i/len(tickets); p.progress != nil && done > before {
			fmt.Fprintf(p.progress, "\r%3d %% of %d files", done, len(tickets))
		}
	}
	if p.progress != nil && len(tickets) > 0 {
		fmt.Fprintln(p.progress)
	}
	return jobs, nil
}

func (p program) report(ctx context.Context, jobs []*ojs.JobInfo, dead *engine.DeadLetters) (n int, err error) {
	var completed, discarded, retries int
	var bytes int64
	for _, job := range jobs {
		retries += max(job.Attempt-1, 0)
		switch {
		case job.State == ojs.StateCompleted:
			var sum Sum
			if err := job.DecodeResult(&sum); err != nil {
				return 0, err
			}
			completed++
			bytes += sum.Bytes
			if p.list {
				file, err := Checksum.Decode(job)
				if err != nil {
					return 0, err
				}
				fmt.Fprintf(p.out, "%s  %s\n", sum.SHA256, file.Path)
			}
		case !job.DeadLettered():
			discarded++
		}
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "files\tchecksummed\tbytes\tretries\tvanished\tdead\t\n")
	fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t\n", len(jobs), completed, bytes, retries, discarded, len(jobs)-completed-discarded)
	if err := table.Flush(); err != nil {
		return 0, err
	}
	for job, err := range dead.List(ctx, engine.Filter{}) {
		if err != nil {
			return n, err
		}
		if n == 0 {
			fmt.Fprintln(p.out, "\ndead letters:")
		}
		n++
		file, err := Checksum.Decode(job)
		if err != nil {
			return n, err
		}
		fmt.Fprintf(p.out, "  %s: %s after %d attempts: %s\n", file.Path, job.Error.Type, job.Attempt, job.Error.Message)
	}
	return n, nil
}
