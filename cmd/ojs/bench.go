package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

type benchVerb struct {
	Jobs        int `default:"10000" help:"How many jobs to enqueue and run."`
	Batch       int `default:"500" help:"How many to enqueue at once."`
	Concurrency int `default:"100" help:"How many to run at once."`
}

func (benchVerb) Help() string {
	return `It says what the storage does on this machine: it makes a schema ojs_bench in the database, or a
file PATH.bench, and deletes it afterwards. The jobs of the storage are left alone. Handlers do
nothing.`
}

// benchSchema is the schema of PostgreSQL that a bench makes.
const benchSchema = "ojs_bench"

// benchResult is what was measured.
type benchResult struct {
	Storage    string  `json:"storage"`
	Jobs       int     `json:"jobs"`
	EnqueueP50 float64 `json:"enqueue_p50_ms"` // of single enqueues, one after the other
	EnqueueP99 float64 `json:"enqueue_p99_ms"`
	Enqueue    float64 `json:"enqueue_batches_per_second"` // jobs
	Run        float64 `json:"run_per_second"`             // jobs
	TripP50    float64 `json:"round_trip_p50_ms"`          // from the enqueue to the end
	TripP99    float64 `json:"round_trip_p99_ms"`
}

// Run measures a storage.
func (v *benchVerb) Run(c *call) (err error) {
	if v.Jobs < 1 || v.Batch < 1 || v.Concurrency < 1 {
		return usageError{errors.New("--jobs, --batch and --concurrency are 1 or more")}
	}
	st, end, err := benchStorage(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	r, err := v.measure(c, st)
	if err != nil {
		return err
	}
	return c.page(r.Storage, r, func() []string {
		ms := func(a, b float64) cell { return of(fmt.Sprintf("%.1f ms median, %.1f ms at 99 %%", a, b)) }
		rate := func(n float64) cell { return of(number(int(n)) + " jobs/s") }
		return c.style.fields([]field{{"storage", of(r.Storage)},
			{"one enqueue", ms(r.EnqueueP50, r.EnqueueP99)},
			{"enqueue in batches", rate(r.Enqueue)}, {"run", rate(r.Run)},
			{"enqueue to end", ms(r.TripP50, r.TripP99)}})
	})
}

func (v *benchVerb) measure(c *call, st storage.Storage) (r benchResult, err error) {
	eng, err := engine.New[any](st, engine.WithName("ojs-bench"), engine.WithConcurrency(v.Concurrency),
		engine.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return r, err
	}
	eng.Handle("ojs.bench", func(context.Context, *ojs.Job[any]) error { return nil })
	r.Storage, r.Jobs = st.Capabilities().Name, v.Jobs
	times, err := c.times(100, func() error {
		_, err := eng.Enqueue(c.ctx, "ojs.bench", nil)
		return err
	})
	if err != nil {
		return r, err
	}
	r.EnqueueP50, r.EnqueueP99 = times[len(times)/2], times[len(times)*99/100]
	begin := c.clock.Now()
	for n := 0; n < v.Jobs; n += v.Batch {
		drafts := make([]ojs.Draft, min(v.Batch, v.Jobs-n))
		for i := range drafts {
			drafts[i] = ojs.NewDraft("ojs.bench", nil)
		}
		if _, err := eng.EnqueueMany(c.ctx, drafts...); err != nil {
			return r, err
		}
	}
	r.Enqueue = float64(v.Jobs) / c.clock.Since(begin).Seconds()
	running, stop := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	begin = c.clock.Now()
	go func() { ended <- eng.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if err := eng.WaitIdle(c.ctx); err != nil {
		return r, err
	}
	r.Run = float64(v.Jobs+100) / c.clock.Since(begin).Seconds()
	times, err = c.times(100, func() error {
		ticket, err := eng.Enqueue(c.ctx, "ojs.bench", nil)
		if err == nil {
			_, err = ticket.Wait(c.ctx)
		}
		return err
	})
	if err == nil {
		r.TripP50, r.TripP99 = times[len(times)/2], times[len(times)*99/100]
	}
	return r, err
}

// times calls f n times, and returns how long the calls took, in ms, the shortest first.
func (c *call) times(n int, f func() error) ([]float64, error) {
	list := make([]float64, n)
	for i := range list {
		begin := c.clock.Now()
		if err := f(); err != nil {
			return nil, err
		}
		list[i] = float64(c.clock.Since(begin)) / float64(time.Millisecond)
	}
	slices.Sort(list)
	return list, nil
}

// benchStorage makes a storage beside that of the call, which the function deletes.
func benchStorage(c *call) (storage.Storage, func() error, error) {
	k, path, err := c.address()
	if err != nil {
		return nil, nil, err
	}
	switch k {
	case onMemory:
		st := memory.New()
		return st, st.Close, nil
	case onSQLite:
		path += ".bench"
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fixError{fmt.Errorf("%s is there", path),
				"delete it, if an earlier bench has left it"}
		}
		st, err := sqlite.Open(c.ctx, path)
		if err != nil {
			return nil, nil, err
		}
		return st, func() error {
			err := st.Close()
			for _, suffix := range []string{"", "-wal", "-shm", "-turn"} {
				if gone := os.Remove(path + suffix); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
					err = errors.Join(err, gone)
				}
			}
			return err
		}, nil
	}
	return benchPostgres(c)
}

func benchPostgres(c *call) (storage.Storage, func() error, error) {
	pool, _, err := poolOf(c.ctx, c.flags.Storage, "")
	if err != nil {
		return nil, nil, err
	}
	var there bool
	err = pool.QueryRow(c.ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)",
		benchSchema).Scan(&there)
	if err == nil && there {
		err = fixError{errors.New("there is a schema " + benchSchema),
			"if an earlier bench has left it: DROP SCHEMA " + benchSchema + " CASCADE"}
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	drop := func() error {
		defer pool.Close()
		ctx := context.WithoutCancel(c.ctx) // also after a signal
		_, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+benchSchema+" CASCADE")
		return err
	}
	st, err := postgres.Open(c.ctx, pool, postgres.WithSchema(benchSchema))
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	return st, func() error { return errors.Join(st.Close(), drop()) }, nil
}
