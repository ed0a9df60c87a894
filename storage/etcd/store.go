package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/benbjohnson/clock"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ojsengine/ojs/internal/sorted"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// wall is the wall clock.
var wall = clock.New()

// store implements driver.DB and driver.Watcher. The first transaction wins:
//
//   - The pairs are the keys that begin with the prefix and "k". The version is one key
//     more. Each commit compares its revision with the one that the transaction has read,
//     and writes it. So all commits to a keyspace are in one order.
//   - Every handle has all pairs in memory, as a map that is copied when it is written. A
//     watch brings what is committed, by this handle and by others. A transaction reads
//     the map of its beginning, and no request is made at an old revision.
//   - Begin asks the cluster for the revision of the version, and waits until the watch
//     has brought it.
//   - A commit that has no answer may be made. Package keyed finds out by its token
//     (driver.Limits.Unsure): a transaction that is made later conflicts.
type store struct {
	client   *clientv3.Client
	prefix   string
	version  string
	id       string // of this handle, the value of the version after its commits
	gate     *driver.Gate
	stop     context.CancelFunc // ends the watch
	followed chan struct{}      // closed when the watch has ended

	mu    sync.Mutex // guards the fields below
	now   snapshot
	moved chan struct{} // closed when now changes
	heard func()        // called after commits of others; nil: no one has called Watch
}

// snapshot is the pairs as of a revision of the version.
type snapshot struct {
	pairs *sorted.Map[string, []byte]
	at    int64 // 0: nothing has been committed
}

func newID() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// Limits implements driver.DB.
func (s *store) Limits() driver.Limits {
	return driver.Limits{Durable: true, Shared: true, Unsure: true, Writes: maxWrites, Bytes: maxBytes}
}

// load reads all pairs, and returns their revision. A compaction meanwhile begins it
// anew.
func (s *store) load(ctx context.Context) (rev int64, err error) {
	for {
		now := snapshot{pairs: new(sorted.Map[string, []byte])}
		rev, err = s.loadInto(ctx, &now)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			if err == nil {
				s.moveTo(now, false)
			}
			return rev, err
		}
	}
}

func (s *store) loadInto(ctx context.Context, now *snapshot) (rev int64, err error) {
	end := clientv3.GetPrefixRangeEnd(s.prefix)
	for from := s.prefix; ; {
		r, err := patient(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return s.client.Get(ctx, from,
				clientv3.WithRange(end), clientv3.WithLimit(1000), clientv3.WithRev(rev))
		})
		if err != nil {
			return rev, err
		}
		if rev == 0 {
			rev = r.Header.Revision
		}
		for _, kv := range r.Kvs {
			s.take(now, kv, false)
			from = string(kv.Key) + "\x00"
		}
		if !r.More {
			return rev, nil
		}
	}
}

// take enters what the cluster has under a key.
func (s *store) take(now *snapshot, kv *mvccpb.KeyValue, deleted bool) {
	switch k := string(kv.Key[len(s.prefix):]); {
	case k == "v":
		now.at = kv.ModRevision
	case deleted:
		now.pairs.Delete(k[1:])
	default:
		now.pairs.Set(k[1:], append([]byte{}, kv.Value...)) // nil is no empty value
	}
}

// follow takes in what is committed after a revision, until the store is closed.
func (s *store) follow(ctx context.Context, rev int64) {
	defer close(s.followed)
	for ctx.Err() == nil {
		watching := clientv3.WithRequireLeader(ctx)
		for r := range s.client.Watch(watching, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1)) {
			if r.Err() != nil {
				break
			}
			if n := len(r.Events); n > 0 {
				s.takeIn(r.Events)
				rev = r.Events[n-1].Kv.ModRevision
			}
		}
		if ctx.Err() != nil {
			return
		}
		// The cluster has no leader, or has forgotten the revision.
		if now, err := s.load(ctx); err == nil {
			rev = now
		} else {
			wait(ctx, requestTimeout)
		}
	}
}

// takeIn enters events. All of a commit come together.
func (s *store) takeIn(events []*clientv3.Event) {
	now := snapshot{pairs: s.now.pairs.Clone()} // only the watch changes s.now
	others := false
	for _, e := range events {
		others = others || string(e.Kv.Key) == s.version && string(e.Kv.Value) != s.id
		s.take(&now, e.Kv, e.Type == clientv3.EventTypeDelete)
	}
	if now.at == 0 {
		now.at = s.now.at
	}
	s.moveTo(now, others)
}

// moveTo has transactions begin with a snapshot. others says that another handle has
// committed.
func (s *store) moveTo(now snapshot, others bool) {
	s.mu.Lock()
	s.now = now
	close(s.moved)
	s.moved = make(chan struct{})
	heard := s.heard
	s.mu.Unlock()
	if others && heard != nil {
		heard()
	}
}

// Watch implements driver.Watcher.
func (s *store) Watch(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = changed
}

// Begin implements driver.DB.
func (s *store) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if err := s.gate.Enter(ctx, write); err != nil {
		return nil, err
	}
	t := &tx{s: s, ctx: ctx, writes: write}
	rev, err := s.revision(ctx)
	if err == nil {
		t.snapshot, err = s.upTo(ctx, rev)
	}
	if err != nil {
		t.Discard()
		return nil, err
	}
	return t, nil
}

// revision asks the cluster for the revision of the version.
func (s *store) revision(ctx context.Context) (rev int64, err error) {
	r, err := patient(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.client.Get(ctx, s.version)
	})
	if err == nil && len(r.Kvs) > 0 {
		rev = r.Kvs[0].ModRevision
	}
	return rev, err
}

// upTo returns the snapshot of a revision, or of a later one, once the watch has brought
// it.
func (s *store) upTo(ctx context.Context, rev int64) (snapshot, error) {
	late := wall.Timer(patience)
	defer late.Stop()
	for {
		s.mu.Lock()
		now, moved := s.now, s.moved
		s.mu.Unlock()
		if now.at >= rev {
			return now, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return now, ctx.Err()
		case <-late.C:
			return now, errBehind
		}
	}
}

var errBehind = fmt.Errorf("the watch of the cluster is behind for more than %v", patience)

// Close implements driver.DB.
func (s *store) Close() error {
	return s.gate.Close(func() error {
		s.stop()
		<-s.followed
		return s.client.Close()
	})
}

// passing reports whether an error may go by itself: the cluster has no leader, or a
// member is gone.
func passing(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	code := status.Code(err)
	var of interface{ Code() codes.Code }
	if errors.As(err, &of) {
		code = of.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}
