package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/test/etcdtest"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// TestMembersDie kills members while three handles work, and starts them again: no call
// fails, no job is lost, and none is completed twice.
func TestMembersDie(t *testing.T) {
	needCluster(t)
	leader := leaderOf(t, cluster)
	for name, dying := range map[string][]int{
		"the leader": {leader}, "another": {(leader + 1) % etcdtest.Members}, "all": {0, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			work(t, fmt.Sprint("load", keyspaces.Add(1)), func(settled func(n int)) {
				settled(30)
				for _, i := range dying {
					cluster.Kill(i)
				}
				if len(dying) == 1 {
					settled(90) // the others go on
				}
				for _, i := range dying {
					if err := cluster.Up(i); err != nil {
						t.Error(err)
					}
				}
				settled(150)
			})
		})
	}
}

// connect returns a client of a cluster.
func connect(t *testing.T, c *etcdtest.Cluster) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func leaderOf(t *testing.T, c *etcdtest.Cluster) int {
	t.Helper()
	client := connect(t, c)
	for i, url := range c.Endpoints() {
		if s, err := client.Status(ctx, url); err == nil && s.Leader == s.Header.MemberId {
			return i
		}
	}
	t.Fatal("the cluster has no leader")
	return 0
}

// work has three handles of a keyspace insert, claim and complete jobs until meanwhile
// returns, whose function waits until n jobs are completed. It then completes the rest,
// and holds that each job that was inserted has been completed once.
func work(t *testing.T, keyspace string, meanwhile func(settled func(n int))) {
	const handles, batch = 3, 5
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var mu sync.Mutex
	progress := sync.NewCond(&mu)
	inserted, completed, stopped := 0, make(map[string]int), false
	attempt := func(s storage.Storage, worker string, n int) (more bool, err error) {
		mu.Lock()
		more = !stopped
		mu.Unlock()
		if more {
			jobs := make([]storage.Insert, batch)
			for i := range jobs {
				r := &jobs[i].Record
				r.ID, r.Type, r.Queue = fmt.Sprint(worker, ".", n, ".", i), "t", "q"
				r.State, r.CreatedAt, r.EnqueuedAt = ojs.StateAvailable, now, now
			}
			if _, err := s.Insert(ctx, now, jobs, nil); err != nil {
				return false, err
			}
			mu.Lock()
			inserted += batch
			mu.Unlock()
		}
		claimed, err := s.Claim(ctx, now, storage.Claim{Worker: worker, Max: batch, Lease: time.Hour}, nil)
		if err != nil || len(claimed) == 0 {
			return more, err
		}
		changes := make([]storage.Change, len(claimed))
		for i := range claimed {
			claimed[i].State, claimed[i].FinishedAt = ojs.StateCompleted, now
			changes[i].Record = claimed[i]
		}
		out, err := s.Settle(ctx, now, changes, nil)
		if err != nil {
			return false, err
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range out {
			if out[i].Err != nil {
				return false, out[i].Err
			}
			completed[claimed[i].ID]++
		}
		progress.Broadcast()
		return true, nil
	}
	var handle sync.WaitGroup
	for h := range handles {
		s, err := Open(ctx, clientv3.Config{Endpoints: cluster.Endpoints()}, keyspace)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		handle.Go(func() {
			more, err := true, error(nil)
			for n := 0; more && err == nil; n++ {
				more, err = attempt(s, fmt.Sprint("w", h), n)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	defer context.AfterFunc(ctx, progress.Broadcast)()
	meanwhile(func(n int) {
		mu.Lock()
		defer mu.Unlock()
		for len(completed) < n && ctx.Err() == nil && !t.Failed() {
			progress.Wait()
		}
	})
	mu.Lock()
	stopped = true
	mu.Unlock()
	handle.Wait()
	if len(completed) != inserted {
		t.Errorf("%d jobs inserted and %d completed", inserted, len(completed))
	}
	for id, n := range completed {
		if n > 1 {
			t.Errorf("job %s was completed %d times", id, n)
		}
	}
}

// TestCompacted has a handle be behind what the cluster remembers: it reads all keys
// again.
func TestCompacted(t *testing.T) {
	needCluster(t)
	s := handle(t, "compacted/").(*store)
	defer s.Close()
	s.stop()
	<-s.followed
	other := handle(t, "compacted/").(*store)
	defer other.Close()
	for i := range 3 {
		put(t, other, fmt.Sprint("k", i))
	}
	r, err := other.client.Get(ctx, other.version)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.client.Compact(ctx, r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	follow, stop := context.WithCancel(ctx)
	s.followed, s.stop = make(chan struct{}), stop
	go s.follow(follow, 1)
	tx, err := s.Begin(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Discard()
	if got, err := tx.Scan([]byte("a"), []byte("z"), 9, false, nil); len(got) != 3 || err != nil {
		t.Errorf("%d keys, error %v", len(got), err)
	}
}

// put commits a key.
func put(t *testing.T, s *store, key string) {
	t.Helper()
	if err := try(s, key, 1); err != nil {
		t.Fatal(err)
	}
}

// try commits a key with a value of some bytes.
func try(s *store, key string, n int) error {
	tx, err := s.Begin(ctx, true)
	if err != nil {
		return err
	}
	return tx.Commit([]driver.Pair{{Key: []byte(key), Value: make([]byte, n)}})
}

// TestQuota fills a cluster: the error says what to do, and reads go on.
func TestQuota(t *testing.T) {
	needCluster(t)
	small, err := etcdtest.Start("--max-txn-ops=20000", "--max-request-bytes=15728640",
		"--quota-backend-bytes=16777216")
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	s, err := openStore(ctx, clientv3.Config{Endpoints: small.Endpoints()}, "full/")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := 0; err == nil; i++ {
		if i == 100 {
			t.Fatal("100 MB went into 16 MB")
		}
		err = try(s, fmt.Sprint("k", i), 1<<20)
	}
	if !strings.Contains(err.Error(), "defragment") {
		t.Errorf("%v does not say what to do", err)
	}
	tx, err := s.Begin(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	tx.Discard()
}

// TestSmallTransactions has Open refuse members with the settings of etcd itself.
func TestSmallTransactions(t *testing.T) {
	needCluster(t)
	plain, err := etcdtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, err = Open(ctx, clientv3.Config{Endpoints: plain.Endpoints()}, "jobs")
	if err == nil || !strings.Contains(err.Error(), "--max-txn-ops") {
		t.Errorf("error %v does not say which setting is too small", err)
	}
}

// TestKeyspace has Open refuse names that are none.
func TestKeyspace(t *testing.T) {
	for _, name := range []string{"", "a/b", strings.Repeat("x", 101)} {
		_, err := Open(ctx, clientv3.Config{}, name)
		var bad *ojs.InvalidError
		if !errors.As(err, &bad) || bad.Field != "keyspace" {
			t.Errorf("%q: error %v", name, err)
		}
	}
}
