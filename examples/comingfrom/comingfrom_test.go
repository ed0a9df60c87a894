package comingfrom_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

const document = "../../docs/coming-from.md"

type Email struct {
	To   string `json:"to"`
	User int    `json:"user"`
}

type Charge struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

// begin makes an engine that has not been started.
func begin(opts ...engine.Option) (context.Context, *engine.Engine[any]) {
	silent := engine.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	return context.Background(),
		must(engine.New[any](memory.New(), append([]engine.Option{silent}, opts...)...))
}

// work runs an engine until it has nothing to do now.
func work(ctx context.Context, eng *engine.Engine[any]) {
	run, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- eng.Run(run) }()
	check(eng.WaitIdle(ctx))
	stop()
	check(<-ended)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Every snippet of the document stands in an Example, word for word but for the
// indentation. The document links to every file of Examples, or has a snippet of it.
func TestSnippets(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	sources := make(map[string]string)
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "\nfunc Example") {
			sources[name] = "\n" + string(source)
		}
	}
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(snippets) < 5 || len(sources) < 10 {
		t.Fatalf("%d snippets, %d files", len(snippets), len(sources))
	}
	for _, s := range snippets {
		inFunction := "\n" + regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(s[1], "\t$1")
		found := false
		for name, source := range sources {
			if strings.Contains(source, "\n"+s[1]) || strings.Contains(source, inFunction) ||
				strings.Contains(source, strings.ReplaceAll(inFunction, "\n\t", "\n\t\t")) {
				found, used[name] = true, true
			}
		}
		if !found {
			t.Errorf("in no Example:\n%s", s[1])
		}
	}
	for name := range sources {
		if !used[name] && !strings.Contains(string(text), "(../examples/comingfrom/"+name+")") {
			t.Errorf("the document has nothing of %s", name)
		}
	}
}
