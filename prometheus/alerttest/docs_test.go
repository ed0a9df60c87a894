package alerttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	ojsprometheus "github.com/ojsengine/ojs/prometheus"
)

type described struct {
	name, kind, help string
	labels           []string
}

var descPattern = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "([^"]+)", constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

// metrics are what a collector has, by name.
func metrics(t *testing.T) map[string]described {
	t.Helper()
	ch := make(chan *prometheus.Desc, 100)
	ojsprometheus.New().Describe(ch)
	close(ch)
	all := make(map[string]described)
	for d := range ch {
		m := descPattern.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("not understood: %v", d)
		}
		one := described{name: m[1], help: m[2], kind: "gauge"}
		if m[3] != "" {
			one.labels = strings.Split(m[3], ",")
		}
		switch {
		case strings.HasSuffix(one.name, "_total"):
			one.kind = "counter"
		case strings.HasSuffix(one.name, "_seconds"):
			one.kind = "histogram"
		}
		all[one.name] = one
	}
	return all
}

func operations(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The document has a table of all metrics and of no others.
func TestMetricsTable(t *testing.T) {
	all := metrics(t)
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", m.name, strings.Join(m.labels, ", "), m.help))
	}
	table := strings.Join(rows, "")
	if !strings.Contains(operations(t), "| metric | labels | what |\n|---|---|---|\n"+table+"\n") {
		t.Errorf("docs/operations.md does not have the table\n%s", table)
	}
}

// checkExpr wants an expression whose metrics and labels a collector has.
func checkExpr(t *testing.T, all map[string]described, expr string) {
	t.Helper()
	parsed, err := parser.ParseExpr(strings.NewReplacer("$__rate_interval", "5m").Replace(expr))
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return
	}
	used := 0
	var known []string // labels
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		sel, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		used++
		name := sel.Name
		m, ok := all[name]
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			if whole, is := strings.CutSuffix(name, part); is && all[whole].kind == "histogram" {
				m, ok = all[whole], true
				if part == "_bucket" {
					known = append(known, "le")
				}
			}
		}
		if !ok || m.kind == "histogram" && name == m.name {
			t.Errorf("%s: there is no series %s", expr, name)
		}
		known = append(known, m.labels...)
		for _, match := range sel.LabelMatchers {
			if match.Name != labels.MetricName && !slices.Contains(m.labels, match.Name) {
				t.Errorf("%s: %s has no label %s", expr, name, match.Name)
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if agg, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range agg.Grouping {
				if !slices.Contains(known, l) {
					t.Errorf("%s: nothing has a label %s", expr, l)
				}
			}
		}
		return nil
	})
	if used == 0 {
		t.Errorf("%s is about no metric", expr)
	}
}

// Each alert has its section, which says what it means and then what to do.
func TestAlertsAreDocumented(t *testing.T) {
	doc, all := operations(t), metrics(t)
	for _, rule := range alerts(t) {
		checkExpr(t, all, rule.Expr)
		if want := "docs/operations.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook"] != want ||
			rule.Annotations["summary"] == "" ||
			!slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s: annotations %v, labels %v", rule.Alert, rule.Annotations, rule.Labels)
		}
		_, section, ok := strings.Cut(doc, "\n#### "+rule.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		meaning, do, _ := strings.Cut(strings.TrimSpace(section), "\n\n")
		if !ok || len(meaning) < 20 || len(do) < 20 {
			t.Errorf("operations.md does not say what %s means and what to do", rule.Alert)
		}
	}
}

var (
	metricWord = regexp.MustCompile(`\b(ojs_[a-z_]+|retr[a-z]+_[a-z_]*(?:total|seconds)[a-z_]*)\b`)
	dotted     = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// The text names no metric that is not there.
func TestMetricsInText(t *testing.T) {
	all := metrics(t)
	for _, path := range []string{"../../docs/operations.md", "../../docs/alerts.yml",
		"../../docs/grafana.json", "../doc.go", "../../README.md"} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := metricWord.FindAllString(string(raw), -1)
		for _, name := range found {
			if all[name].name == "" && all[dotted.ReplaceAllString(name, "")].kind != "histogram" &&
				name != "ojs_" && name != "ojs_retries_total" {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
	}
}

func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Definition string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 30 {
		t.Errorf("title %q, uid %q, schemaVersion %d", d.Title, d.UID, d.SchemaVersion)
	}
	all := metrics(t)
	vars := 0
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			vars++
			inner := regexp.MustCompile(`^label_values\((.+), ([a-z]+)\)$`).FindStringSubmatch(v.Definition)
			if inner == nil || inner[2] != v.Name {
				t.Errorf("variable %s is %s", v.Name, v.Definition)
				continue
			}
			checkExpr(t, all, inner[1])
		}
	}
	if vars != 2 {
		t.Errorf("%d variables", vars)
	}
	ids, cells, shown := make(map[int]bool), make(map[[2]int]int), ""
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[at]; other != 0 || at[0] >= 24 {
					t.Errorf("panels %d and %d overlap, or leave the grid, at %v", other, p.ID, at)
				}
				cells[at] = p.ID
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q, a %s, has %d queries", p.Title, p.Type, len(p.Targets))
		}
		for _, q := range p.Targets {
			checkExpr(t, all, q.Expr)
			shown += q.Expr + "\n"
		}
	}
	for name := range all {
		if !strings.Contains(shown, name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
