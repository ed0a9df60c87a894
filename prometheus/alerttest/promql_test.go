package alerttest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// history is series with a sample for each minute.
type history []promql.Series

// past reads series in the notation of promtool: metric{label="value"} 0+1x60.
func past(t *testing.T, series ...string) (h history) {
	t.Helper()
	for _, s := range series {
		metric, values, err := parser.ParseSeriesDesc(s)
		if err != nil {
			t.Fatal(err)
		}
		line := promql.Series{Metric: metric}
		for i, v := range values {
			if !v.Omitted {
				line.Floats = append(line.Floats, promql.FPoint{T: int64(i) * time.Minute.Milliseconds(),
					F: v.Value})
			}
		}
		h = append(h, line)
	}
	return h
}

// now is an hour of samples after the first.
var now = time.UnixMilli(time.Hour.Milliseconds())

// ask evaluates an expression as a server would.
func (h history) ask(t *testing.T, expr string) promql.Vector {
	t.Helper()
	server := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute,
		LookbackDelta: 5 * time.Minute})
	defer server.Close()
	query, err := server.NewInstantQuery(context.Background(),
		&storage.MockQueryable{MockQuerier: &storage.MockQuerier{
			SelectMockFunction: func(_ bool, _ *storage.SelectHints,
				ms ...*labels.Matcher) storage.SeriesSet {
				return h.find(ms)
			},
		}}, nil, expr, now)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(context.Background())
	vector, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return vector
}

func (h history) find(ms []*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{at: -1}
	for _, s := range h {
		if !slices.ContainsFunc(ms,
			func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
			found.series = append(found.series, s)
		}
	}
	return found
}

type seriesSet struct {
	series []promql.Series
	at     int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series                { return promql.NewStorageSeries(s.series[s.at]) }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
