package engine_test

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// The settings are the defaults, and what options have changed of them.
func TestSettings(t *testing.T) {
	plain := must1(engine.New[any](memory.New())).Describe()
	if plain.Name != "ojs" || plain.Slots != 10 || plain.Prefetch != 32 ||
		plain.GracePeriod != 25*time.Second || plain.Defaults.Lease != ojs.DefaultLease ||
		plain.Queues != nil || plain.Codecs != nil || plain.JobLogs != nil || plain.Reports != 0 ||
		plain.Storage.Name != "memory" {
		t.Errorf("%+v", plain)
	}
	eng := must1(engine.New[any](memory.New(), engine.WithName("shop"), engine.WithConcurrency(3),
		engine.WithPrefetch(7), engine.WithGracePeriod(time.Second),
		engine.WithQueueConfig("b", engine.QueueConfig{}), engine.WithQueueConfig("a", engine.QueueConfig{}),
		engine.WithDefaults(ojs.WithTimeout(time.Minute), ojs.WithMaxAttempts(9)),
		engine.WithCodec(codec.Gzip()), engine.WithJobLogs(slog.LevelWarn),
		engine.WithReports(engine.Reports{Every: 2 * time.Second})))
	got := eng.Describe()
	if got.Name != "shop" || got.Slots != 3 || got.Prefetch != 7 ||
		got.GracePeriod != time.Second || !slices.Equal(got.Queues, []string{"b", "a"}) ||
		got.Defaults.Timeout != time.Minute || got.Defaults.Retry.MaxAttempts != 9 ||
		!slices.Equal(got.Codecs, []string{codec.Gzip().Encoding()}) || *got.JobLogs != slog.LevelWarn ||
		got.Reports != 2*time.Second {
		t.Errorf("%+v", got)
	}
	must(t, eng.ConfigureQueue(t.Context(), "a", engine.QueueConfig{Concurrency: 1}))
	if n := eng.Describe().Prefetch; n != 0 {
		t.Errorf("with a limit %d jobs are claimed ahead", n)
	}
	one := must1(engine.New[any](memory.New(), engine.WithConcurrency(1)))
	if n := one.Describe().Prefetch; n != 0 {
		t.Errorf("with one slot %d jobs are claimed ahead", n)
	}
}
