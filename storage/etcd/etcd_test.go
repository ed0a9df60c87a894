package etcd

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/ojsengine/ojs/internal/test/etcdtest"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/keyed/drivertest"
	"github.com/ojsengine/ojs/storage/keyed/keyedtest"
	"github.com/ojsengine/ojs/storage/storagetest"
)

var ctx = context.Background()

var cluster *etcdtest.Cluster

func TestMain(m *testing.M) {
	os.Exit(etcdtest.Main(m, &cluster, "--max-txn-ops=20000", "--max-request-bytes=15728640",
		"--heartbeat-interval=50", "--election-timeout=500"))
}

func needCluster(tb testing.TB) {
	if cluster == nil {
		tb.Skip("it needs etcd: set OJS_ETCD to have the tests start a cluster")
	}
}

var (
	keyspaces atomic.Int64
	prefixes  sync.Map // by store
)

// handle opens a keyspace.
func handle(tb testing.TB, prefix string) driver.DB {
	tb.Helper()
	s, err := openStore(ctx, clientv3.Config{Endpoints: cluster.Endpoints()}, prefix)
	if err != nil {
		tb.Fatal(err)
	}
	prefixes.Store(driver.DB(s), prefix)
	return s
}

func again(tb testing.TB, db driver.DB) driver.DB {
	prefix, _ := prefixes.Load(db)
	return handle(tb, prefix.(string))
}

var config = drivertest.Config{
	Open:   func(tb testing.TB) driver.DB { return handle(tb, fmt.Sprintf("test%d/", keyspaces.Add(1))) },
	Reopen: again, Another: again,
}

func TestDriver(t *testing.T) {
	needCluster(t)
	defer goleak.VerifyNone(t)
	drivertest.Run(t, config)
}

func TestStorage(t *testing.T) {
	needCluster(t)
	storagetest.Run(t, keyedtest.Config(config))
}

func TestSameBehaviour(t *testing.T) {
	needCluster(t)
	storagetest.SameBehaviour(t, keyedtest.Config(config))
}

func BenchmarkStorage(b *testing.B) {
	needCluster(b)
	storagetest.Benchmark(b, keyedtest.Config(config).Open)
}
