// Package report collects what rounds measured and prints the medians.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Metric is a column. The first of a section is the one that rows are compared by.
type Metric struct {
	Name     string `json:"name"`
	Decimals int    `json:"-"`
}

// Section is a table: what contenders did under one setting.
type Section struct {
	Title   string   `json:"title"`
	Metrics []Metric `json:"metrics"`
	Base    string   `json:"base"` // the row that others are compared to; none if there is no such row
	Rows    []*Row   `json:"rows"`
}

// Row is a contender. It keeps every round, so that the JSON is enough to judge the
// spread by.
type Row struct {
	Name   string      `json:"name"`
	Rounds [][]float64 `json:"rounds"` // in the order of the metrics
	Error  string      `json:"error,omitempty"`
}

// Add records a round of a contender. Rows stand in the order in which they first came.
func (s *Section) Add(name string, values ...float64) {
	r := s.row(name)
	r.Rounds = append(r.Rounds, values)
}

// Fail records that a contender failed. The rounds it had before do not count.
func (s *Section) Fail(name string, err error) { s.row(name).Error = err.Error() }

// Failed reports whether a contender has failed.
func (s *Section) Failed(name string) bool {
	return slices.ContainsFunc(s.Rows, func(r *Row) bool { return r.Name == name && r.Error != "" })
}

func (s *Section) row(name string) *Row {
	i := slices.IndexFunc(s.Rows, func(r *Row) bool { return r.Name == name })
	if i < 0 {
		i = len(s.Rows)
		s.Rows = append(s.Rows, &Row{Name: name})
	}
	return s.Rows[i]
}

// median is that of a metric over the rounds; NaN if there are none.
func (r *Row) median(metric int) float64 {
	if r == nil || len(r.Rounds) == 0 || r.Error != "" {
		return math.NaN()
	}
	values := r.column(metric)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// column returns a metric's values, sorted.
func (r *Row) column(metric int) []float64 {
	values := make([]float64, 0, len(r.Rounds))
	for _, round := range r.Rounds {
		values = append(values, round[metric])
	}
	slices.SortFunc(values, cmp.Compare[float64])
	return values
}

// Text writes the section as an aligned table: the medians, the ratio of the first metric
// to that of the base, and its lowest and highest round, which tell how far to trust it.
func (s *Section) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\n", s.Title)
	header := "contender\t"
	for _, m := range s.Metrics {
		header += m.Name + "\t"
	}
	fmt.Fprintln(t, header+"ratio\tlowest\thighest\t")
	var base *Row
	for _, r := range s.Rows {
		if r.Name == s.Base {
			base = r
		}
	}
	for _, r := range s.Rows {
		if r.Error != "" {
			fmt.Fprintf(t, "%s\tfailed: %s\t\n", r.Name, r.Error)
			continue
		}
		fmt.Fprintf(t, "%s\t", r.Name)
		for i, m := range s.Metrics {
			fmt.Fprintf(t, "%.*f\t", m.Decimals, r.median(i))
		}
		ratio := "-"
		if q := r.median(0) / base.median(0); !math.IsNaN(q) && !math.IsInf(q, 0) {
			ratio = fmt.Sprintf("%.2f", q)
		}
		first := r.column(0)
		decimals := s.Metrics[0].Decimals
		fmt.Fprintf(t, "%s\t%.*f\t%.*f\t\n", ratio, decimals, first[0], decimals, first[len(first)-1])
	}
	return t.Flush()
}

// Report is the output of a program.
type Report struct {
	Machine  Machine    `json:"machine"`
	Sections []*Section `json:"sections"`
}

// Write writes the report as text or as JSON.
func (r *Report) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	if _, err := fmt.Fprintln(w, r.Machine); err != nil {
		return err
	}
	for _, s := range r.Sections {
		if err := s.Text(w); err != nil {
			return err
		}
	}
	return nil
}

// Err returns an error if a contender failed, so that a program does not end as if all
// were well.
func (r *Report) Err() error {
	for _, s := range r.Sections {
		for _, row := range s.Rows {
			if row.Error != "" {
				return fmt.Errorf("%s: %s: %s", s.Title, row.Name, row.Error)
			}
		}
	}
	return nil
}
