package dashboard

import (
	"cmp"
	"io/fs"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

var (
	templateText = regexp.MustCompile(`(?:\$?\.|\$)T "((?:[^"\\]|\\.)*)"`)
	goText       = regexp.MustCompile(`(?:\bT\(|Title:\s*|Text:\s*)("(?:[^"\\]|\\.)*")`)
	verb         = regexp.MustCompile(`%[a-z]`)
)

// Every text of a page is in every language, and takes the same values there.
func TestCatalogueIsWhole(t *testing.T) {
	texts := make(map[string]string) // where each is used
	err := fs.WalkDir(templateFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := templateFiles.ReadFile(path)
		for _, m := range templateText.FindAllStringSubmatch(string(b), -1) {
			texts[m[1]] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range goText.FindAllStringSubmatch(string(b), -1) {
			text, err := strconv.Unquote(m[1])
			if err != nil {
				t.Fatal(err)
			}
			texts[text] = f.Name()
		}
	}
	for _, e := range navigation {
		texts[e.Name], texts[cmp.Or(e.Group, e.Name)] = "navigation", "navigation"
	}
	add := func(where string, list iter.Seq[string]) {
		for text := range list {
			texts[text] = where
		}
	}
	add("dones", maps.Values(dones))
	add("verbNames", maps.Values(verbNames))
	add("reasons", maps.Values(reasons))
	add("attemptEnds", maps.Values(attemptEnds))
	add("noteNames", maps.Values(noteNames))
	add("outcomeNames", maps.Values(outcomeNames))
	add("problemTexts", maps.Values(problemTexts))
	add("kindNames", maps.Values(kindNames))
	add("orderNames", maps.Values(orderNames))
	add("weekdayNames", slices.Values(weekdayNames))
	add("monthNames", slices.Values(monthNames))
	for _, s := range ojs.AllStates() {
		texts[string(s)] = "states"
	}
	for _, t := range workflowTabs {
		texts[t.name] = "workflowTabs"
	}
	for _, c := range comparisons {
		texts[c.name] = "comparisons"
	}
	for _, c := range scales {
		texts[c.Name] = "scales"
	}
	for text, where := range texts {
		translated, ok := catalogue["de"][text]
		if !ok {
			t.Errorf("%s: %q has no German", where, text)
		}
		a, b := verb.FindAllString(text, -1), verb.FindAllString(translated, -1)
		if ok && !slices.Equal(a, b) {
			t.Errorf("%q takes %v and in German %v", text, a, b)
		}
	}
	if len(texts) < 80 {
		t.Errorf("found %d texts only", len(texts))
	}
}

// No text of the catalogue and no class of the style sheet is left that nothing uses.
func TestNothingIsUnused(t *testing.T) {
	var sources strings.Builder
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") {
			b, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(b)
		}
	}
	for _, dir := range []fs.FS{templateFiles, assetFiles} {
		err := fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, ".css") {
				return err
			}
			b, err := fs.ReadFile(dir, path)
			sources.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := sources.String()
	for _, s := range ojs.AllStates() {
		all += ` "` + string(s) + `" `
	}
	all += ` "paused" "draining" "key" "queue" "type" "error" "running" "quiet" "terminate" `
	all += ` "healthy" "degraded" "unhealthy" `
	for text := range catalogue["de"] {
		if !strings.Contains(all, strconv.Quote(text)) && !strings.Contains(all, `"`+text+`"`) {
			t.Errorf("nothing says %q", text)
		}
	}
	style, err := assetFiles.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	words := make(map[string]bool)
	for _, word := range regexp.MustCompile(`[a-z][a-z-]*`).FindAllString(all, -1) {
		words[word] = true
	}
	for _, m := range regexp.MustCompile(`\.([a-z][a-z-]*)`).FindAllStringSubmatch(string(style), -1) {
		if !words[m[1]] {
			t.Errorf("nothing has the class %s", m[1])
		}
	}
}
