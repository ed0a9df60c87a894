package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
)

// deploys returns the versions that have ever been reported, and are not forgotten.
func (b *rig) deploys() []engine.Deploy {
	b.t.Helper()
	list, err := b.Nodes().Deploys(b.ctx, time.Time{}, time.Now().Add(time.Second))
	must(b.t, err)
	return list
}

// live has an engine with a version run for a time.
func (b *rig) live(version string, d time.Duration) {
	b.t.Helper()
	eng, err := engine.New[any](b.store, quiet,
		engine.WithReports(engine.Reports{Every: time.Minute, Version: version}))
	must(b.t, err)
	b.Engine = eng
	b.run()
	b.advance(d)
	b.halt()
}

// A version has the time of its first report until no engine has had it for 90 days.
func TestDeploys(t *testing.T) {
	const day = 24 * time.Hour
	inBubble(t, func(b *rig) {
		long := strings.Repeat("x", 199) + "ü" // whose last character would be cut in two
		for _, v := range []string{"v1", "v2 (ü)", "v1", long} {
			b.live(v, 2*time.Minute)
		}
		list := b.deploys()
		if len(list) != 3 || list[0] != (engine.Deploy{Version: "v1", At: list[0].At}) ||
			list[1].Version != "v2 (ü)" || list[2].Version != long[:199] {
			t.Fatalf("%+v", list)
		}
		for i, at := range []time.Duration{0, 2 * time.Minute, 6 * time.Minute} {
			if !list[i].At.Equal(b.start.Add(at)) {
				t.Errorf("%s: at %v, want %v", list[i].Version, list[i].At.Sub(b.start), at)
			}
		}
		some, err := b.Nodes().Deploys(b.ctx, list[1].At, list[2].At)
		must(t, err)
		if len(some) != 1 || some[0] != list[1] {
			t.Errorf("from the second until the third: %+v", some)
		}
		time.Sleep(80 * day)
		b.live("v1", time.Minute)
		time.Sleep(89 * day)
		if again := b.deploys(); len(again) != 1 || again[0] != list[0] {
			t.Errorf("later: %+v", again)
		}
		time.Sleep(2 * day)
		if list := b.deploys(); len(list) != 0 {
			t.Errorf("in the end: %+v", list)
		}
		back := time.Now()
		b.live("v1", time.Minute)
		if list := b.deploys(); len(list) != 1 || !list[0].At.Equal(back) {
			t.Errorf("back again: %+v", list)
		}
	})
}

// An engine that runs renews its version each day, and has it again after a failure.
func TestDeployIsRenewed(t *testing.T) {
	store := hooked(nil)
	inBubbleOn(t, store, func(b *rig) {
		store.OnCall(breaks("Values", false, nil))
		b.run()
		b.advance(time.Minute)
		store.OnCall(nil)
		if len(b.storedDeploys()) != 0 {
			t.Error("stored without a look at what is there")
		}
		if len(b.nodes()) != 1 {
			t.Error("the node has not reported")
		}
		b.advance(25 * time.Hour)
		list := b.storedDeploys()
		if len(list) != 1 || time.Until(list[0].Expires) < 89*24*time.Hour {
			t.Errorf("%+v", list)
		}
		if d := b.deploys(); len(d) != 1 || d[0].At.Sub(b.start) > 3*time.Minute {
			t.Errorf("%+v, started %v", d, b.start)
		}
	}, engine.WithReports(engine.Reports{Every: time.Minute, Version: "v1"}))
}

func (b *rig) storedDeploys() []storage.Value {
	b.t.Helper()
	list, err := b.store.Values(b.ctx, time.Now(), "deploy/", "", 0)
	must(b.t, err)
	return list
}
