package postgres_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ojsengine/ojs/internal/test/crashtest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

// Calls while the server is restarted, or its synchronous standby is promoted, are
// linearizable. OJS_FAILOVERS sets how many histories of them are made.
func TestHistoriesOfFailovers(t *testing.T) {
	t.Parallel()
	histories := 4
	if n, err := strconv.Atoi(os.Getenv("OJS_FAILOVERS")); err == nil {
		histories = n
	}
	primary := privateServer(t)
	t.Cleanup(func() { _ = primary.Close() }) // the last one
	end := startEndpoint(t, primary)
	pool := poolAt(t, end.dsn(), nil)
	cfg := configOn(t, pool)
	soon := func() { crashtest.Wait(t.Context(), rand.N(15*time.Millisecond)) }
	restart := func() func() {
		return func() {
			soon()
			must(t, primary.Crash())
			must(t, primary.Up())
		}
	}
	failOver := func() func() {
		standby, err := primary.Standby()
		must(t, err)
		return func() {
			soon()
			must(t, primary.Crash())
			must(t, standby.Promote())
			end.moveTo(standby)
			old := primary
			primary = standby
			must(t, old.Close())
		}
	}
	n := 0
	first := func(_ string, version uint64) uint64 { return version &^ 0xffff }
	storagetest.Failovers(t, cfg, histories, first, func() func() {
		if n++; n%2 == 0 {
			return failOver()
		}
		return restart()
	})
	pool.Reset() // for what removes the schemas
}
