package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// trial is what a judge has done without a mutant: one of its tests, or all of them.
type trial struct {
	test    string       // "": all
	reached map[int]bool // mutants, by number
	took    limit
}

// warmUp runs the judge without a mutant, which it has to pass, and notes what it
// reaches: each test by itself, unless the judge is a long one.
func (j *judge) warmUp(ctx context.Context, parallel int) (err error) {
	var out []byte
	if j.whole, out, err = j.try(ctx, ""); err != nil || j.long {
		j.trials = []trial{j.whole}
		return err
	}
	tests := leaves(out)
	j.trials = make([]trial, len(tests))
	errs := make([]error, len(tests))
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	for range parallel {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(tests); i = int(next.Add(1)) - 1 {
				j.trials[i], _, errs[i] = j.try(ctx, tests[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// try runs a test of the judge without a mutant.
func (j *judge) try(ctx context.Context, test string) (trial, []byte, error) {
	f, err := os.CreateTemp("", "reached")
	if err != nil {
		return trial{}, nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	t := trial{test: test, reached: make(map[int]bool)}
	args := []string{"-test.v"}
	if test != "" {
		args = append(args, only([]string{test}))
	}
	wall := clock.New()
	begin := wall.Now()
	out, used, err := j.start(ctx, limit{10 * time.Minute, 10 * time.Minute}, args,
		planted+"=0", planted+"_REACHED="+f.Name())
	if err != nil {
		return t, nil, fmt.Errorf("the judge fails without a mutant: %w\n%s", err, out)
	}
	t.took = limit{used, wall.Since(begin)}
	b, err := os.ReadFile(f.Name())
	for _, id := range strings.Fields(string(b)) {
		n, _ := strconv.Atoi(id)
		t.reached[n] = true
	}
	return t, out, err
}

var begun = regexp.MustCompile(`(?m)^=== RUN +(\S+)$`)

// leaves returns the tests without subtests that have run, from what -test.v prints.
func leaves(out []byte) (names []string) {
	for _, m := range begun.FindAllSubmatch(out, -1) {
		names = append(names, string(m[1]))
	}
	return slices.DeleteFunc(names, func(n string) bool {
		return bytes.Contains(out, []byte("=== RUN   "+n+"/"))
	})
}

// only is the argument with which a test binary runs some tests, and perhaps some more
// whose names are made of the same parts.
func only(tests []string) string {
	var levels []map[string]bool
	for _, t := range tests {
		for i, part := range strings.Split(t, "/") {
			if i == len(levels) {
				levels = append(levels, make(map[string]bool))
			}
			levels[i][regexp.QuoteMeta(part)] = true
		}
	}
	parts := make([]string, len(levels))
	for i, l := range levels {
		parts[i] = "^(" + strings.Join(slices.Sorted(maps.Keys(l)), "|") + ")$"
	}
	return "-test.run=" + strings.Join(parts, "/")
}
