package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each rule of the binding is named by a test of this package, or of one beside it that
// serves the binding.
func TestRulesAreNamed(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "docs", "spec", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "../remote/*_test.go",
		"../cmd/ojs/*_test.go", "../codec/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	list := regexp.MustCompile(`(?m)^([A-Z]\d{3})\.`).FindAllSubmatch(rules, -1)
	if len(list) < 150 {
		t.Fatalf("docs/spec/http.md has %d rules", len(list))
	}
	for _, m := range list {
		if id := string(m[1]); !strings.Contains(tests.String(), id) {
			t.Errorf("no test names %s", id)
		}
	}
}
