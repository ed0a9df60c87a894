package main

import (
	"errors"
	"fmt"
	"io"
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
		if !strings.HasSuffix(progress.String(), "\r6 of 6 files\n") {
			t.Errorf("progress %q", progress.String())
		}
	})
}

// Every outcome is collected although there are more files than finished jobs are kept,
// and however late the first files are: the first one fails three times, while thousands
// of jobs behind it finish.
func TestRunOnManyFiles(t *testing.T) {
	files := 30_000
	if testing.Short() || raceEnabled {
		files = 15_000
	}
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		var progress lines
		dead, err := program{out: &out, progress: &progress}.run(t.Context(), &flat{files: files, late: 3})
		if err != nil || dead != 0 {
			t.Fatalf("%d dead, %v", dead, err)
		}
		want := fmt.Sprintf("%d  %d  %d        3         0     0\n", files, files, 6*files)
		if !strings.Contains(squeezed(out.String()), squeezed(want)) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
		if whileWalking := progress.before(files); whileWalking == 0 {
			t.Error("no progress was shown before all files had been found")
		}
	})
}

// lines counts the lines of progress.
type lines struct{ strings.Builder }

// before returns how many lines say that fewer than all files have been found.
func (l *lines) before(files int) (n int) {
	for _, line := range strings.Split(l.String(), "\r") {
		var done, found int
		if _, err := fmt.Sscanf(line, "%d of %d files", &done, &found); err == nil && found < files {
			n++
		}
	}
	return n
}

func squeezed(s string) string { return strings.Join(strings.Fields(s), " ") }

// flat is a file system of one directory with many small files. Opening the first of them
// fails so many times.
type flat struct {
	files int
	mu    sync.Mutex // guards late
	late  int
}

func (f *flat) Open(name string) (fs.File, error) {
	if name == "." {
		return &flatDir{flat: f}, nil
	}
	if name == "file0" {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.late > 0 {
			f.late--
			return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("input/output error")}
		}
	}
	return fstest.MapFS{name: &fstest.MapFile{Data: []byte("hello\n")}}.Open(name)
}

type flatDir struct {
	*flat
	read int
}

func (*flatDir) Stat() (fs.FileInfo, error) { return fstest.MapFS{}.Stat(".") }
func (*flatDir) Read([]byte) (int, error)   { return 0, fs.ErrInvalid }
func (*flatDir) Close() error               { return nil }
func (*flatDir) Type() fs.FileMode          { return 0 }
func (d *flatDir) ReadDir(n int) (list []fs.DirEntry, err error) {
	if n <= 0 {
		return nil, errors.New("the whole directory is read at once")
	}
	for ; n > 0 && d.read < d.files; n-- {
		list = append(list, flatEntry(fmt.Sprint("file", d.read)))
		d.read++
	}
	if len(list) == 0 {
		err = io.EOF
	}
	return list, err
}

type flatEntry string

func (e flatEntry) Name() string             { return string(e) }
func (flatEntry) IsDir() bool                { return false }
func (flatEntry) Type() fs.FileMode          { return 0 }
func (flatEntry) Info() (fs.FileInfo, error) { return nil, fs.ErrInvalid }

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
