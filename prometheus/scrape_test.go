package ojsprometheus_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape is what a server reads over HTTP from a registry, parsed as it would.
func scrape(t *testing.T, reg *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("scraped: %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// samples are the counters and gauges that are not zero, and the sums and counts of
// histograms, one to a line.
func samples(families map[string]*dto.MetricFamily) (lines []string) {
	for name, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			line := name
			if labels != nil {
				line += "{" + strings.Join(labels, ",") + "}"
			}
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				if v := m.GetCounter().GetValue(); v != 0 {
					lines = append(lines, fmt.Sprintf("%s %g", line, v))
				}
			case dto.MetricType_GAUGE:
				if v := m.GetGauge().GetValue(); v != 0 {
					lines = append(lines, fmt.Sprintf("%s %g", line, v))
				}
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				lines = append(lines, fmt.Sprintf("%s %d in %gs", line, h.GetSampleCount(), h.GetSampleSum()))
			default:
				lines = append(lines, line+" is a "+family.GetType().String())
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// value is a counter or gauge, -1 if it is not there.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	for _, m := range families[name].GetMetric() {
		if len(m.GetLabel())*2 != len(labels) {
			continue
		}
		match := true
		for _, l := range m.GetLabel() {
			at := slices.Index(labels, l.GetName())
			match = match && at >= 0 && labels[at+1] == l.GetValue()
		}
		if match {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return -1
}

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, path string, lines []string) {
	t.Helper()
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("scraped\n%s\nwant\n%s", got, want)
	}
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("scraped\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// only keeps the lines that start with a prefix.
func only(lines []string, prefixes ...string) []string {
	return slices.DeleteFunc(lines, func(l string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l, p) })
	})
}
