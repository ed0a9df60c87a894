package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ojsengine/ojs/storage/keyed/driver"
)

// tx implements driver.Tx.
type tx struct {
	snapshot
	s      *store
	ctx    context.Context
	writes bool
	ended  bool
}

func (t *tx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	for _, k := range keys {
		v, _ := t.pairs.Get(string(k))
		dst = append(dst, v)
	}
	return dst, nil
}

func (t *tx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	pairs := t.pairs.From(string(from))
	if reverse {
		pairs = t.pairs.Before(string(to))
	}
	for k, v := range pairs {
		if max == 0 || k >= string(to) || k < string(from) {
			break
		}
		max--
		dst = append(dst, driver.Pair{Key: []byte(k), Value: v})
	}
	return dst, nil
}

func (t *tx) Peek(from, to []byte, max int, dst []driver.Pair) ([]driver.Pair, error) {
	return t.Scan(from, to, max, false, dst)
}

// Commit implements driver.Tx. It makes one request.
func (t *tx) Commit(writes []driver.Pair) error {
	defer t.Discard()
	if len(writes) == 0 {
		rev, err := t.s.revision(t.ctx)
		if err == nil && rev != t.at {
			err = driver.ErrConflict
		}
		return err
	}
	ops := make([]clientv3.Op, 0, len(writes)+1)
	ops = append(ops, clientv3.OpPut(t.s.version, t.s.id))
	for _, w := range writes {
		k := t.s.prefix + "k" + string(w.Key)
		if w.Value == nil {
			ops = append(ops, clientv3.OpDelete(k))
		} else {
			ops = append(ops, clientv3.OpPut(k, string(w.Value)))
		}
	}
	r, err := limited(t.ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return t.s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(t.s.version), "=", t.at)).
			Then(ops...).Commit()
	})
	switch {
	case err == nil && !r.Succeeded:
		return driver.ErrConflict
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: start the members with --max-request-bytes=15728640", err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: compact and defragment the members, and then disarm the alarm", err)
	case passing(err) || t.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrUnknown, err)
	}
	return err
}

func (t *tx) Discard() {
	if t.ended {
		return
	}
	t.ended = true
	t.s.gate.Leave(t.writes)
}
