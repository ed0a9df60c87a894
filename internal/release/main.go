// Command release prepares a release of all modules of the repository:
//
//	go run ./internal/release v0.2.0
//
// It writes the version to every go.mod and to go.work, and prints the release's notes,
// which stand under its version in CHANGELOG.md, and the commands that publish it. The
// modules have one version, and require each other at it. A tag of each module makes the
// version known to the module proxy.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/release vX.Y.Z")
		os.Exit(2)
	}
	if err := release(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(version string) error {
	notes, err := notesOf(version)
	if err != nil {
		return err
	}
	if err := setVersion(".", version); err != nil {
		return err
	}
	published, err := published(".")
	if err != nil {
		return err
	}
	fmt.Printf("%s\n\nThe go.mod files and go.work have the version. Run .ci/run, and then:\n\n", notes)
	fmt.Printf("git commit -am 'Release %s'\n", version)
	var tags []string
	for _, m := range published {
		tags = append(tags, strings.TrimPrefix(m.Dir+"/", "./")+version)
	}
	for _, tag := range tags {
		fmt.Printf("git tag -a %s -m %s\n", tag, tag)
	}
	fmt.Printf("git push origin HEAD %s\n", strings.Join(tags, " "))
	return nil
}

// semver matches a version of a module.
var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// notesOf returns what CHANGELOG.md says under the version.
func notesOf(version string) (string, error) {
	if !semver.MatchString(version) {
		return "", fmt.Errorf("%q is not a version: it is to be like v0.2.0", version)
	}
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return "", err
	}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		if title, notes, _ := strings.Cut(section, "\n"); strings.Fields(title)[0] == version {
			return strings.TrimSpace(notes), nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section %s", version)
}

// module is one of the repository.
type module struct {
	Path string
	Dir  string // from the root of the repository: "." is the root
	file string // its go.mod
}

// modules returns the modules of a repository, the root first.
func modules(root string) (list []module, err error) {
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "go.mod" || strings.Contains(path, "/testdata/") {
			return err
		}
		var mod struct{ Module struct{ Path string } }
		if err := edit(path, &mod, "-json"); err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		list = append(list, module{mod.Module.Path, dir, path})
		return err
	})
	return list, err
}

// published returns the modules that others can require: those without replacements.
func published(root string) (list []module, err error) {
	all, err := modules(root)
	for _, m := range all {
		var mod struct{ Replace []any }
		if err := edit(m.file, &mod, "-json"); err != nil {
			return nil, err
		}
		if mod.Replace == nil {
			list = append(list, m)
		}
	}
	return list, err
}

// setVersion has the modules require each other at a version, and go.work replace it.
func setVersion(root, version string) error {
	all, err := modules(root)
	if err != nil {
		return err
	}
	paths := make(map[string]bool)
	for _, m := range all {
		paths[m.Path] = true
	}
	for _, m := range all {
		var mod struct{ Require []struct{ Path string } }
		if err := edit(m.file, &mod, "-json"); err != nil {
			return err
		}
		var flags []string
		for _, r := range mod.Require {
			if paths[r.Path] {
				flags = append(flags, "-require="+r.Path+"@"+version)
			}
		}
		if flags != nil {
			if err := edit(m.file, nil, flags...); err != nil {
				return err
			}
		}
	}
	work := filepath.Join(root, "go.work")
	text, err := os.ReadFile(work)
	if err != nil {
		return err
	}
	text = regexp.MustCompile(` v\S+ =>`).ReplaceAll(text, []byte(" "+version+" =>"))
	return os.WriteFile(work, text, 0o644)
}

// edit runs go mod edit on a file, and decodes what it prints.
func edit(file string, into any, flags ...string) error {
	out, err := exec.Command("go", append(append([]string{"mod", "edit"}, flags...), file)...).Output()
	if err != nil {
		return fmt.Errorf("go mod edit %s: %w", file, err)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(bytes.NewReader(out)).Decode(into)
}
