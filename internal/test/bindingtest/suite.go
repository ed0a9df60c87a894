package bindingtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
)

// Storage is the name of the storages that Fresh makes.
var Storage = "memory"

// Fresh makes an empty storage, which ends with the test. The tests of packages server
// and remote run on it: in memory, unless Suite runs them.
var Fresh = func(tb testing.TB) storage.Storage {
	s := memory.New()
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// Suite runs the tests of packages server and remote on another storage. code is a Go
// file that sets Fresh, whose package clause says "package binding_test". The core
// imports no storage of another module, so that the file lies over the packages for this
// run alone. It builds them anew and takes a minute, so that it is made if OJS_BINDING is
// set.
func Suite(t *testing.T, code string, env ...string) {
	if os.Getenv("OJS_BINDING") == "" {
		t.Skip("a minute long: set OJS_BINDING")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server", "remote"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, list := filepath.Join(dir, "fresh_test.go"), filepath.Join(dir, "overlay.json")
			text := strings.Replace(code, "package binding_test", "package "+name+"_test", 1)
			over, err := json.Marshal(map[string]any{"Replace": map[string]string{
				filepath.Join(root, name, "fresh_overlay_test.go"): file}})
			if err != nil {
				t.Fatal(err)
			}
			for path, data := range map[string][]byte{file: []byte(text), list: over} {
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=5m",
				"-overlay="+list, "./"+name)
			cmd.Dir = root
			cmd.Env = append(append(os.Environ(), "GOFLAGS="), env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
