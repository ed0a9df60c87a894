package jsonlines_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ojsengine/ojs/examples/jsonlines"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func open(tb testing.TB, path string) storage.Storage {
	s, err := jsonlines.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func config(t *testing.T) storagetest.Config {
	dir := t.TempDir()
	var mu sync.Mutex // guards paths
	paths := make(map[storage.Storage]string)
	keep := func(s storage.Storage, path string) storage.Storage {
		mu.Lock()
		defer mu.Unlock()
		paths[s] = path
		return s
	}
	n := 0
	return storagetest.Config{
		Open: func(tb testing.TB) storage.Storage {
			mu.Lock()
			n++
			path := filepath.Join(dir, strings.Repeat("j", n%100+1)+".jsonl")
			mu.Unlock()
			_ = os.Remove(path)
			return keep(open(tb, path), path)
		},
		Reopen: func(tb testing.TB, s storage.Storage) storage.Storage {
			if err := s.Close(); err != nil {
				tb.Fatal(err)
			}
			mu.Lock()
			path := paths[s]
			mu.Unlock()
			return keep(open(tb, path), path)
		},
		Orders: true, Versions: true,
	}
}

func TestStorage(t *testing.T) {
	storagetest.Run(t, config(t))
	storagetest.RunEngine(t, config(t))
	storagetest.SameBehaviour(t, config(t))
}

func TestFileThatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, text := range []string{"no JSON\n", `{"insert":[{}]}` + "\n", `{"claim":7}` + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := jsonlines.Open(path); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", text, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file was touched: %q, %v", got, err)
		}
	}
	if err := os.WriteFile(path, []byte(`{"now":"2026-01-01T00:00:00Z","du`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := jsonlines.Open(path)
	if err != nil {
		t.Fatalf("a line that was cut off: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
