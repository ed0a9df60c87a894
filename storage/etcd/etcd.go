// Package etcd keeps jobs in an etcd cluster: highly available, with no server beyond the
// one that the cluster is.
//
//	cluster := clientv3.Config{Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"}}
//	store, err := etcd.Open(ctx, cluster, "jobs")
//
// An enqueue that has returned is on the disks of a majority of the members. It survives
// the loss of any minority. Calls wait while the cluster elects a leader, for ten seconds
// at most.
//
// # What it is for
//
// Some hundreds of jobs a second, where a cluster runs already. Each change of any job is
// agreed on by the members, one after the other: docs/storages.md has the price. Every
// process holds all jobs of its keyspace in memory, some 600 bytes each and their args.
//
// # The cluster
//
// The members need larger transactions than etcd allows by itself:
//
//	etcd --max-txn-ops=20000 --max-request-bytes=15728640 \
//		--auto-compaction-mode=periodic --auto-compaction-retention=5m \
//		--quota-backend-bytes=8589934592
//
// Open fails with the advice if they refuse them. Without compaction the history of all
// changes fills the quota. The jobs of a program are the keys that begin with the name of
// its keyspace and a slash, and nothing else may write there.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
)

const (
	maxWrites = 16_000   // of a transaction; etcd counts a few more
	maxBytes  = 12 << 20 // of their keys and values
	maxSend   = 16 << 20 // of a request, with what is around them
)

// Open opens the jobs of a keyspace in a cluster. It connects as config says, and Close
// closes the connection. The name of a keyspace has 1 to 100 bytes and no slash. Open
// reads all jobs. It fails with an *ojs.InvalidError of the keyspace, with an error that
// says how to start etcd, if the members refuse the transactions that jobs need, and with
// those of the cluster. All methods of the storage are safe for concurrent use.
func Open(ctx context.Context, config clientv3.Config, keyspace string) (*keyed.Storage, error) {
	if keyspace == "" || len(keyspace) > 100 || strings.Contains(keyspace, "/") {
		return nil, &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "keyspace",
			Reason: fmt.Sprintf("%q is no name of 1 to 100 bytes without a slash", keyspace)}
	}
	db, err := openStore(ctx, config, keyspace+"/")
	if err != nil {
		return nil, fmt.Errorf("ojs: etcd: opening keyspace %s: %w", keyspace, err)
	}
	s, err := keyed.Open(db, "etcd")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// openStore connects to a cluster and reads the keys under a prefix.
func openStore(ctx context.Context, config clientv3.Config, prefix string) (*store, error) {
	if config.MaxCallSendMsgSize == 0 {
		config.MaxCallSendMsgSize = maxSend
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	s := &store{
		client: client, prefix: prefix, version: prefix + "v", id: newID(),
		gate: driver.NewGate(), followed: make(chan struct{}), moved: make(chan struct{}),
	}
	rev, err := s.begin(ctx)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	follow, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.follow(follow, rev)
	return s, nil
}

// begin looks whether the members make transactions that are large enough, and reads the
// keys. It returns their revision.
func (s *store) begin(ctx context.Context) (rev int64, err error) {
	many := make([]clientv3.Op, maxWrites+2)
	for i := range many {
		many[i] = clientv3.OpGet(s.version, clientv3.WithCountOnly())
	}
	_, err = patient(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).Then(many...).Commit()
	})
	if errors.Is(err, rpctypes.ErrTooManyOps) {
		return 0, fmt.Errorf("%w: start the members with --max-txn-ops=20000 and --max-request-bytes=15728640", err)
	}
	if err != nil {
		return 0, err
	}
	return s.load(ctx)
}

// Requests that only read are made again for as long as patience lasts.
const (
	requestTimeout = 2 * time.Second
	patience       = 10 * time.Second
)

// patient makes a request that changes nothing, again while the cluster does not answer.
func patient[R any](ctx context.Context, request func(ctx context.Context) (R, error)) (r R, err error) {
	until := wall.Now().Add(patience)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		r, err = limited(ctx, request)
		if err == nil || ctx.Err() != nil || !passing(err) || wall.Now().After(until) {
			return r, err
		}
		wait(ctx, pause)
	}
}

// limited makes a request that has requestTimeout.
func limited[R any](ctx context.Context, request func(ctx context.Context) (R, error)) (R, error) {
	ctx, cancel := wall.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return request(ctx)
}

func wait(ctx context.Context, d time.Duration) {
	timer := wall.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
