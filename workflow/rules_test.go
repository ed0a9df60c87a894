package workflow_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// rules are the rules of workflows, W001 to W094. A rule is in the name or the comment of
// a test that proves it, or it has a reason here why none does.
var rules = map[string]string{
	"W001": "", "W002": "", "W003": form, "W004": form, "W005": "",
	"W006": "", "W007": "", "W008": "", "W009": "",
	"W010": form, "W011": "", "W012": "", "W013": "",
	"W020": "", "W021": "", "W022": "", "W023": "", "W024": "",
	"W025": "every storage has the transaction of W024",
	"W026": "", "W027": "",
	"W030": "", "W031": "", "W032": "", "W033": "", "W034": "",
	"W035": "", "W036": "", "W037": "", "W038": "",
	"W039": "",
	"W040": "", "W041": "", "W042": "", "W043": "", "W044": "", "W045": form,
	"W050": "", "W051": "", "W052": "", "W053": "",
	"W060": form, "W061": "", "W062": "", "W063": "", "W064": "", "W065": form, "W066": form,
	"W070": form, "W071": form, "W072": form, "W073": form, "W074": form,
	"W075": form, "W076": form, "W077": form,
	"W080": "", "W081": "", "W082": "", "W083": "", "W084": "",
	"W090": "",
	"W091": "", "W092": "", "W093": "", "W094": "",
}

// The wire is that of the HTTP server. Here a program has a Workflow and its Status.
const form = "it is about the form on the wire"

// Each rule has a test or a reason, and not both.
func TestRulesHaveTests(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	cases, err := filepath.Glob("../storage/storagetest/cases_*.go")
	must(t, err)
	rule := regexp.MustCompile(`W0[0-9][0-9]`)
	tested := make(map[string]bool)
	for _, file := range slices.Concat(files, cases) {
		if file == "rules_test.go" {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		for _, id := range rule.FindAllString(string(text), -1) {
			tested[id] = true
			if _, ok := rules[id]; !ok {
				t.Errorf("%s names %s, which is no rule", file, id)
			}
		}
	}
	for id, reason := range rules {
		if tested[id] == (reason != "") {
			t.Errorf("%s: a test: %v, a reason for none: %q", id, tested[id], reason)
		}
	}
}
