package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rules are the rules of limits (L), codecs (K) and versions of job types (V). A rule is
// in the name or the comment of a test that proves it. Otherwise a case of the storages'
// suite proves it ("case limit-2"), or a test that has another name ("test TestX"), or
// there is a reason here why none does.
var rules = map[string]string{
	"L001": "", "L002": "", "L003": "", "L004": "case limit-1",
	"L005": "case limit-10", "L006": "case limit-3", "L007": "case limit-1",
	"L010": "test TestRateLimitJSON", "L011": "",
	"L012": "", "L013": "",
	"L020": "", "L021": "", "L022": "", "L023": "case limit-6", "L024": "case limit-1",
	"L025": "case limit-11", "L026": "", "L027": "", "L028": "", "L029": "case limit-11",
	"L030": "",
	"L035": "", "L036": "case limit-6", "L037": "",
	"L040": "", "L041": "", "L042": "", "L043": "", "L044": "",
	"L045": "it is about the HTTP server",
	"L050": "", "L051": "", "L052": "test TestLimitsAreForgotten",
	"K001": "", "K002": "", "K003": "", "K004": "", "K005": "", "K006": "", "K007": "", "K008": "",
	"K009": "", "K010": "", "K011": "", "K012": "", "K013": "", "K014": "", "K015": "", "K016": "",
	"K017": "no codec server is part of the project",
	"V001": "", "V002": "", "V003": "", "V004": "", "V005": "", "V006": "", "V007": "", "V008": "",
	"V009": "", "V010": "schemas are the server's", "V011": "jobs are not routed by shares of versions",
}

// Each rule has a test or a reason, and not both.
func TestRulesHaveTests(t *testing.T) {
	var text strings.Builder
	tested := make(map[string]bool)
	for _, pattern := range []string{
		"*_test.go", "../*_test.go", "../codec/*_test.go", "../codec/compress/*_test.go",
		"../internal/versions/*_test.go", "../storage/sqlite/*_test.go", "../storage/storagetest/cases_*.go",
		"../prometheus/*_test.go", "../otel/*_test.go", "../workflow/*_test.go", "../dashboard/*_test.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range slices.DeleteFunc(files, func(f string) bool { return f == "rules_test.go" }) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
			words := strings.FieldsFunc(string(b), func(r rune) bool {
				return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
			})
			for _, id := range words {
				if len(id) != 4 || !strings.ContainsRune("LKV", rune(id[0])) || id[1] != '0' {
					continue
				}
				tested[id] = true
				if _, ok := rules[id]; !ok {
					t.Errorf("%s names %s, which is no rule", file, id)
				}
			}
		}
	}
	for id, reason := range rules {
		name, isCase := strings.CutPrefix(reason, "case ")
		test, isTest := strings.CutPrefix(reason, "test ")
		switch {
		case isCase && !strings.Contains(text.String(), `"`+name+`",`):
			t.Errorf("%s: there is no case %s", id, name)
		case isTest && !strings.Contains(text.String(), "func "+test+"("):
			t.Errorf("%s: there is no test %s", id, test)
		case tested[id] == (reason != ""):
			t.Errorf("%s: a test names it: %v; reason why none does: %q", id, tested[id], reason)
		}
	}
}
