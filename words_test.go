package ojs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/internal/test/words"
)

// Comments, documents and messages keep to the words and line lengths of CONTRIBUTING.md.
func TestWords(t *testing.T) {
	found := make(map[string][]words.Finding) // by directory of Go files, by document
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path == ".git" || d.Name() == "testdata" || path == filepath.Join("docs", "spec") {
				return filepath.SkipDir
			}
			return nil
		}
		isGo := strings.HasSuffix(path, ".go")
		if !isGo && !strings.HasSuffix(path, ".md") || path == "CHANGELOG.md" { // a changelog tells history
			return nil
		}
		files++
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !isGo {
			found[path] = words.Markdown(path, src)
			return nil
		}
		findings, err := words.Go(path, src)
		dir := filepath.Dir(path)
		found[dir] = append(found[dir], findings...)
		return err
	})
	if err != nil || files < 20 {
		t.Errorf("read %d files: %v", files, err)
	}
	for place, findings := range found {
		allowed, counts := notYet[place], words.Count(findings)
		for _, f := range findings {
			if counts[f.Rule] > allowed[f.Rule] {
				t.Error(f)
			}
		}
		if counts != allowed && !t.Failed() {
			t.Logf("%s: lower notYet to %v", place, counts)
		}
		if allowed != (words.Counts{}) && counts == (words.Counts{}) {
			t.Errorf("%s is clean: delete it from notYet", place)
		}
	}
	for place := range notYet {
		if _, ok := found[place]; !ok {
			t.Errorf("%s is gone: delete it from notYet", place)
		}
	}
}

// notYet has the findings of places that were written before the rules: phrases, long
// comment lines, long code lines. A number may only fall. The other places have none.
var notYet = map[string]words.Counts{
	"storage/storagetest": {0, 0, 60},
}
