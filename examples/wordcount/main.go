// Wordcount counts the words of the text files of a directory with a workflow: one step
// finds the files and adds a step for each, these run side by side, and the last one
// reports. If files cannot be counted, the program names them and waits for a line on its
// input. Mend the files and press Enter: only what has failed runs again.
//
//	go run ./examples/wordcount DIR
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/workflow"
)

// Path is the args of each job: a directory or a file.
type Path struct {
	Path string `json:"path"`
}

var (
	findFiles  = ojs.Define[Path]("files.find")
	countWords = ojs.Define[Path]("words.count", ojs.WithMaxAttempts(2))
	report     = ojs.Define[Path]("words.report")
)

// find adds a step for each text file of a directory.
func find(ctx context.Context, job *ojs.Job[Path]) error {
	files, err := filepath.Glob(filepath.Join(job.Args.Path, "*.txt"))
	if err != nil {
		return err
	}
	var parts []workflow.Part
	for _, file := range files {
		parts = append(parts, workflow.Step(filepath.Base(file), countWords.New(Path{file})))
	}
	_, err = workflow.Add(ctx, workflow.Group(parts...))
	return err
}

func count(ctx context.Context, job *ojs.Job[Path]) error {
	text, err := os.ReadFile(job.Args.Path)
	if err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return ojs.Discard(errors.New("is no text"))
	}
	return handler.SetResult(ctx, len(strings.Fields(string(text))))
}

// reporter returns the handler of the report: the words of each file, and of all.
func reporter(out io.Writer) func(context.Context, *ojs.Job[Path]) error {
	return func(ctx context.Context, _ *ojs.Job[Path]) error {
		w, err := workflow.Current(ctx)
		if err != nil {
			return err
		}
		sum := 0
		for i := range w.Steps {
			name, added := strings.CutPrefix(w.Steps[i].Name, "find/")
			if !added {
				continue
			}
			var n int
			if err := w.Steps[i].Job.DecodeResult(&n); err != nil {
				return err
			}
			sum += n
			fmt.Fprintf(out, "%6d %s\n", n, name)
		}
		fmt.Fprintf(out, "%6d words\n", sum)
		return nil
	}
}

func run(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	eng, err := engine.New[Path](memory.New(), engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	eng.Register(handler.For(findFiles, find), handler.For(countWords, count),
		handler.For(report, reporter(out)))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()

	ticket, err := eng.Workflows().Start(ctx, workflow.New("wordcount", workflow.Chain(
		workflow.Adder("find", findFiles.New(Path{dir})),
		workflow.Step("report", report.New(Path{dir})),
	)))
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for {
		w, err := eng.Workflows().Wait(ctx, ticket.ID)
		if err == nil {
			stop()
			return <-ended
		}
		if failed := new(workflow.EndedError); !errors.As(err, &failed) {
			return err
		}
		for i := range w.Steps {
			if step := &w.Steps[i]; step.State() == ojs.StateDiscarded {
				fmt.Fprintf(out, "%s: %s\n", step.Name, step.Job.Error.Message)
			}
		}
		fmt.Fprintln(out, "Mend this and press Enter.")
		if !lines.Scan() {
			stop()
			return errors.Join(<-ended, errors.New("not all files were counted"))
		}
		if err := eng.Workflows().Retry(ctx, ticket.ID); err != nil {
			return err
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: wordcount DIR")
	}
	if err := run(context.Background(), os.Args[1], os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
