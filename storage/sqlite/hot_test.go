package sqlite_test

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"
)

// constants returns the statements of a file by the names of their constants.
func constants(t *testing.T, file string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, 0)
	must(t, err)
	cfg := types.Config{Importer: importer.Default(), Error: func(error) {}} // of what other files declare
	pkg, _ := cfg.Check("sqlite", set, []*ast.File{f}, nil)
	list := make(map[string]string)
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if ok && c.Val().Kind() == constant.String && statement.MatchString(constant.StringVal(c.Val())) {
			list[name] = constant.StringVal(c.Val())
		}
	}
	return list
}

var statement = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH) `)

// mayScan are the statements that may read a whole table or index, or sort, and why.
var mayScan = map[string]string{
	"selectHolders":   "one row for each process",
	"selectClaimedBy": "as many jobs as run",

	"listActive":           "as many jobs as run",
	"listActiveBack":       "as many jobs as run",
	"listActiveNewest":     "as many jobs as run",
	"listActiveNewestBack": "as many jobs as run",

	"selectTally":       "one row for each queue and state",
	"sumState":          "one row for each queue and state",
	"selectQueueStates": "one row for each queue that is not active",
	"selectCounter":     "one row",
	"updateCounter":     "one row",
	"raiseCronVersion":  "one row",
	"activeOfType":      "a scan of a constant",
	"waitingOfQueue":    "a scan of a constant",
	"selectReadyAll":    "the claim ends it",
	"keptFinished":      "a part of a statement that has a limit",
	"deadFinished":      "a part of a statement that has a limit",
	"oldestDead":        "has a limit",
	"selectImpossible":  "an index of rows that should not be",
	"selectOldest":      "sorts the jobs of a bounded queue",
	"recountTally":      "after a state that a person has spoiled by hand",
	"countQuarantined":  "counts what people look at",
	"waitingOfType":     "counts jobs for people, and no index has them by type",
	"forgetEdges":       "few calls revive jobs",
}

// No statement reads a whole table or index that grows with the jobs, or sorts what does.
// SQLite has no statistics here, so that the plans are the same for any number of jobs.
func TestHotStatements(t *testing.T) {
	s := fresh(t)
	list := constants(t, "sql.go")
	if len(list) < 100 {
		t.Errorf("%d statements are found", len(list))
	}
	for name, sql := range list {
		if strings.Contains(sql, "%d") {
			continue // the rest is in TestPlans
		}
		plan, err := s.Explain(sql)
		must(t, err)
		reads := strings.Contains(plan, "SCAN ") || strings.Contains(plan, "TEMP B-TREE")
		if reads && mayScan[name] == "" {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
	for name := range mayScan {
		if list[name] == "" {
			t.Errorf("no statement %s", name)
		}
	}
}
