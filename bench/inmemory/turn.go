package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// turn is one measurement of one contender in one round. It has a process to itself: what
// a contender leaves behind must not slow down the next one. Hundreds of thousands of
// goroutines that have ended, for one, stay known to the garbage collector, which goes
// through them again and again.
type turn struct {
	Measure                  measurement
	Contender                string
	Jobs, Producers, Workers int
}

// measurement is what is measured in a turn.
type measurement string

const (
	ofThroughput measurement = "throughput"
	ofLatency    measurement = "latency"
	ofMemory     measurement = "memory"
)

// turnVar is the environment variable that makes this program take a turn, and nothing
// else. It has the turn as JSON.
const turnVar = "OJS_BENCH_TURN"

// delegate takes the turn in a process of its own and returns the values of the metrics.
func (t turn) delegate(ctx context.Context) ([]float64, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), turnVar+"="+string(b))
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, err
	}
	var values []float64
	return values, json.Unmarshal(out, &values)
}

// takeTurn is what a process does that delegate has started. It reports false in any
// other.
func takeTurn() (bool, error) {
	b := os.Getenv(turnVar)
	if b == "" {
		return false, nil
	}
	var t turn
	if err := json.Unmarshal([]byte(b), &t); err != nil {
		return true, err
	}
	values, err := t.take(context.Background())
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(values)
}

// take measures, here and now.
func (t turn) take(ctx context.Context) ([]float64, error) {
	i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == t.Contender })
	if i < 0 {
		return nil, fmt.Errorf("there is no contender %q", t.Contender)
	}
	c := contenders[i]
	switch t.Measure {
	case ofThroughput:
		r, err := throughput(ctx, c, t.Jobs, t.Producers, t.Workers)
		return []float64{r.jobsPerSecond, r.allocsPerJob, r.bytesPerJob}, err
	case ofLatency:
		sorted, err := latency(ctx, c, t.Jobs, t.Workers)
		if err != nil {
			return nil, err
		}
		micros := func(p int) float64 { return float64(percentile(sorted, p)) / float64(time.Microsecond) }
		return []float64{micros(50), micros(99)}, nil
	case ofMemory:
		bytes, err := retained(ctx, c, t.Jobs)
		return []float64{bytes}, err
	}
	return nil, fmt.Errorf("there is no measurement %q", t.Measure)
}
