package main

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// root is that of the repository, from this package.
const root = "../.."

// A stranger can require every module of a release, run the program of the README, with
// each storage that needs no server, and install the command. The release is made of the
// tree by the release command, and is served by a module proxy of files.
func TestFromOutside(t *testing.T) {
	if os.Getenv("OJS_RELEASE") == "" {
		t.Skip("it compiles everything anew: set OJS_RELEASE=1")
	}
	version := fmt.Sprintf("v0.0.0-test.%d", time.Now().Unix()) // a module cache keeps a version for ever
	tree, proxy, app := t.TempDir(), t.TempDir(), t.TempDir()
	must(t, os.CopyFS(tree, withoutGit{os.DirFS(root)}))
	must(t, setVersion(tree, version))
	list, err := published(tree)
	must(t, err)
	all, err := modules(tree)
	must(t, err)
	for _, m := range list {
		serve(t, proxy, tree, m, all, version)
	}

	cache := output(t, root, "go", "env", "GOMODCACHE")
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB=github.com/ojsengine/*",
		"GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+output(t, root, "go", "env", "GOPROXY"),
		"GOBIN="+app)
	t.Cleanup(func() {
		for _, m := range all {
			must(t, os.RemoveAll(filepath.Join(cache, m.Path)+"@"+version))
			kept, err := filepath.Glob(filepath.Join(cache, "cache/download", m.Path, "@v", version+".*"))
			must(t, err)
			for _, file := range kept {
				must(t, os.Remove(file))
			}
		}
	})
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = app, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	must(t, err)
	install := regexp.MustCompile("(?s)```sh\n(go mod init .*?)```").FindSubmatch(readme)
	if install == nil {
		t.Fatal("README.md does not say how to install it")
	}
	for line := range strings.Lines(string(install[1])) {
		run(strings.Fields(line)...)
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(readme)
	if program == nil {
		t.Fatal("README.md has no program")
	}
	must(t, os.WriteFile(filepath.Join(app, "main.go"), program[1], 0o644))
	if out := run("go", "run", "."); !strings.Contains(out, "completed") {
		t.Errorf("the program of the README printed %s", out)
	}
	get := []string{"go", "get"}
	for _, m := range list {
		get = append(get, m.Path+"@"+version)
	}
	run(get...)
	const command = "github.com/ojsengine/ojs/cmd/ojs"
	run("go", "install", command+"@"+version)
	if out := run("./ojs", "version"); out != "ojs "+version+"\n" {
		t.Errorf("ojs version printed %q", out)
	}

	imports := "package main\n\nimport (\n"
	for _, m := range list {
		packages := output(t, filepath.Join(root, m.Dir),
			"go", "list", "-f", "{{.Name}} {{.ImportPath}}", "./...")
		for line := range strings.Lines(packages) {
			name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name != "main" && !strings.Contains(path, "/internal/") {
				imports += fmt.Sprintf("\t_ %q\n", path)
			}
		}
	}
	must(t, os.WriteFile(filepath.Join(app, "all.go"), []byte(imports+")\n"), 0o644))
	run("go", "mod", "tidy")
	run("go", "build", "./...")
}

// The go.mod and go.sum of each module are as go mod tidy writes them. It reads the other
// modules from the tree.
func TestTidy(t *testing.T) {
	if os.Getenv("OJS_RELEASE") == "" {
		t.Skip("it asks the module proxy for every dependency: set OJS_RELEASE=1")
	}
	tree := t.TempDir()
	must(t, os.CopyFS(tree, withoutGit{os.DirFS(root)}))
	all, err := modules(tree)
	must(t, err)
	for _, m := range all {
		var replace []string
		for _, other := range all {
			replace = append(replace, "-replace="+other.Path+"="+filepath.Join(tree, other.Dir))
		}
		must(t, edit(m.file, nil, replace...))
	}
	for _, m := range all {
		cmd := exec.Command("go", "mod", "tidy", "-diff")
		cmd.Dir, cmd.Env = filepath.Dir(m.file), append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m.Path, err, out)
		}
	}
}

// serve lays a module into a proxy of files.
func serve(t *testing.T, proxy, tree string, m module, all []module, version string) {
	dir := filepath.Join(proxy, m.Path, "@v")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644))
	info := fmt.Sprintf(`{"Version": %q, "Time": "2000-01-01T00:00:00Z"}`, version)
	must(t, os.WriteFile(filepath.Join(dir, version+".info"), []byte(info), 0o644))
	gomod, err := os.ReadFile(m.file)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, version+".mod"), gomod, 0o644))
	f, err := os.Create(filepath.Join(dir, version+".zip"))
	must(t, err)
	z := zip.NewWriter(f)
	from := filepath.Join(tree, m.Dir)
	must(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			nested := func(other module) bool { return filepath.Dir(other.file) == path && path != from }
			if slices.ContainsFunc(all, nested) {
				return fs.SkipDir
			}
			return nil
		}
		w, err := z.Create(m.Path + "@" + version + "/" + filepath.ToSlash(name))
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}))
	must(t, z.Close())
	must(t, f.Close())
}

// withoutGit is a tree without its history.
type withoutGit struct{ fs.FS }

func (w withoutGit) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(w.FS, name)
	return slices.DeleteFunc(list, func(d fs.DirEntry) bool { return d.Name() == ".git" }), err
}

func output(t *testing.T, dir string, args ...string) string {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
