package main

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"go.uber.org/goleak"
)

// trouble is a file system some of whose files make trouble when they are opened.
type trouble struct {
	fstest.MapFS
	mu    sync.Mutex // guards opens
	opens map[string]int
}

func (f *trouble) Open(name string) (fs.File, error) {
	f.mu.Lock()
	f.opens[name]++
	n := f.opens[name]
	f.mu.Unlock()
	switch {
	case name == "secret":
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	case name == "gone":
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case name == "flaky" && n < 3, name == "broken":
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("input/output error")}
	}
	return f.MapFS.Open(name)
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := &trouble{MapFS: fstest.MapFS{}, opens: make(map[string]int)}
		for _, name := range []string{"a", "dir/b", "secret", "gone", "flaky", "broken"} {
			fsys.MapFS[name] = &fstest.MapFile{Data: []byte("hello\n")}
		}
		var out, progress strings.Builder
		dead, err := program{out: &out, progress: &progress, list: true}.run(t.Context(), fsys)
		if err != nil || dead != 2 {
			t.Errorf("%d dead, %v", dead, err)
		}
		for _, want := range []string{
			"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03  dir/b\n",
			"files  checksummed  bytes  retries  vanished  dead",
			"    6            3     18        6         1     2",
			"  secret: file.unreadable after 1 attempts: open secret: permission denied\n",
			"  broken: file.open after 5 attempts: open broken: input/output error\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("output lacks %q:\n%s", want, out.String())
			}
		}
		if !strings.HasSuffix(progress.String(), "\r100 % of 6 files\n") {
			t.Errorf("progress %q", progress.String())
		}
	})
}

func TestRunOnNothing(t *testing.T) {
	var out strings.Builder
	if dead, err := (program{out: &out}).run(t.Context(), fstest.MapFS{}); dead != 0 || err != nil {
		t.Errorf("%d dead, %v", dead, err)
	}
	if _, err := (program{out: &out}).run(t.Context(), &missing{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

type missing struct{}

func (missing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
