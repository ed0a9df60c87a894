// Package jsonlines is a storage of one's own, as small as it can be: jobs in memory, and
// a file with a line of JSON for each call that changed anything. Opening the file makes
// the calls again. It is durable: a call that has returned is on the disk.
//
// The file only grows, and opening it takes as long as everything that ever happened in
// it. A storage for more than an example would write down what is there now and then, and
// begin anew.
package jsonlines

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/codec"
	"github.com/ojsengine/ojs/storage/memory"
)

// Storage is a storage.Storage in a file. One process may have it open.
type Storage struct {
	// one call that may change something at a time, so that the file has them in their
	// order
	mu     sync.Mutex
	jobs   *memory.Storage
	file   *os.File
	failed error // of a write, after which the file is not what is in memory
}

// line is a call that changed something.
type line struct {
	Now    time.Time      `json:"now"`
	Insert []insert       `json:"insert,omitempty"`
	Claim  *storage.Claim `json:"claim,omitempty"`
	Settle [][]byte       `json:"settle,omitempty"`
	Extend []extension    `json:"extend,omitempty"`
	Due    int            `json:"due,omitempty"`
	Delete []string       `json:"delete,omitempty"`
	Prune  *storage.Prune `json:"prune,omitempty"`
}

type insert struct {
	Record     []byte `json:"record"` // as package codec has it
	MaxDepth   int    `json:"max_depth,omitempty"`
	DropOldest bool   `json:"drop_oldest,omitempty"`
	KeepActive bool   `json:"keep_active,omitempty"`
	Fresh      bool   `json:"fresh,omitempty"`
}

// extension is a storage.Extension whose checkpoint is bytes: as JSON, no checkpoint
// would be read back as the checkpoint null.
type extension struct {
	storage.Held
	Progress   float64       `json:"progress,omitempty"`
	Checkpoint []byte        `json:"checkpoint,omitempty"`
	Lease      time.Duration `json:"lease,omitempty"`
}

// Open opens the storage in a file, which it makes if there is none.
func Open(path string) (*Storage, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s := &Storage{jobs: memory.New(), file: f}
	if err := s.replay(); err != nil {
		return nil, errors.Join(fmt.Errorf("jsonlines: %s: %w", path, err), f.Close())
	}
	return s, nil
}

// replay makes the calls of the file again. A last line that is cut off is one whose call
// never returned: it is dropped.
func (s *Storage) replay() error {
	in := bufio.NewReader(s.file)
	var end int64
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		var l line
		if err = json.Unmarshal(text, &l); err == nil {
			err = s.again(&l)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		end += int64(len(text))
	}
	_, err := s.file.Seek(end, io.SeekStart)
	return errors.Join(err, s.file.Truncate(end))
}

// again makes a call again. The storage in memory does the same the second time.
func (s *Storage) again(l *line) error {
	ctx := context.Background()
	var err error
	switch {
	case l.Insert != nil:
		batch := make([]storage.Insert, len(l.Insert))
		for i, in := range l.Insert {
			batch[i].MaxDepth, batch[i].DropOldest, batch[i].KeepActive, batch[i].IDIsNew = in.MaxDepth,
				in.DropOldest, in.KeepActive, in.Fresh
			if batch[i].Record, err = codec.DecodeRecord(in.Record); err != nil {
				return err
			}
		}
		_, err = s.jobs.Insert(ctx, l.Now, batch, nil)
	case l.Claim != nil:
		_, err = s.jobs.Claim(ctx, l.Now, *l.Claim, nil)
	case l.Settle != nil:
		changes := make([]storage.Change, len(l.Settle))
		for i := range l.Settle {
			if changes[i].Record, err = codec.DecodeRecord(l.Settle[i]); err != nil {
				return err
			}
		}
		_, err = s.jobs.Settle(ctx, l.Now, changes, nil)
	case l.Extend != nil:
		list := make([]storage.Extension, len(l.Extend))
		for i, x := range l.Extend {
			list[i] = storage.Extension{
				Held: x.Held, Progress: x.Progress, Checkpoint: x.Checkpoint, Lease: x.Lease,
			}
		}
		_, err = s.jobs.Extend(ctx, l.Now, list)
	case l.Due > 0:
		_, err = s.jobs.Due(ctx, l.Now, l.Due, nil)
	case l.Delete != nil:
		_, err = s.jobs.Delete(ctx, l.Delete)
	case l.Prune != nil:
		_, err = s.jobs.Prune(ctx, *l.Prune)
	}
	return err
}

// write puts a call that changed something on the disk.
func (s *Storage) write(l line) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = s.file.Write(append(text, '\n'))
	}
	if err = errors.Join(err, s.file.Sync()); err != nil {
		s.failed = fmt.Errorf("jsonlines: writing: %w", err)
	}
	return s.failed
}

// begin holds the storage for a call that may change something.
func (s *Storage) begin() error {
	s.mu.Lock()
	if s.failed != nil {
		s.mu.Unlock()
		return s.failed
	}
	return nil
}

// Capabilities implements storage.Storage.
func (s *Storage) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "jsonlines", Durable: true, Unique: storage.Strong,
		Mechanism: "mutex", Orders: true, Versions: true}
}

// Insert implements storage.Storage.
func (s *Storage) Insert(ctx context.Context, now time.Time, batch []storage.Insert,
	dst []storage.Inserted) ([]storage.Inserted, error) {
	if err := s.begin(); err != nil {
		return dst, err
	}
	defer s.mu.Unlock()
	l := line{Now: now}
	for i := range batch {
		record, err := codec.EncodeRecord(&batch[i].Record)
		if err != nil {
			return dst, err
		}
		l.Insert = append(l.Insert, insert{record, batch[i].MaxDepth, batch[i].DropOldest,
			batch[i].KeepActive, batch[i].IDIsNew})
	}
	out, err := s.jobs.Insert(ctx, now, batch, dst)
	if err != nil || len(batch) == 0 {
		return out, err
	}
	return out, s.write(l)
}

// Claim implements storage.Storage.
func (s *Storage) Claim(ctx context.Context, now time.Time, c storage.Claim,
	dst []storage.Record) ([]storage.Record, error) {
	if err := s.begin(); err != nil {
		return dst, err
	}
	defer s.mu.Unlock()
	out, err := s.jobs.Claim(ctx, now, c, dst)
	if err != nil || len(out) == len(dst) {
		return out, err
	}
	return out, s.write(line{Now: now, Claim: &c})
}

// Settle implements storage.Storage.
func (s *Storage) Settle(ctx context.Context, now time.Time, changes []storage.Change,
	dst []storage.Settled) ([]storage.Settled, error) {
	if err := s.begin(); err != nil {
		return dst, err
	}
	defer s.mu.Unlock()
	records := make([][]byte, len(changes))
	for i := range changes {
		var err error
		if records[i], err = codec.EncodeRecord(&changes[i].Record); err != nil {
			return dst, err
		}
	}
	out, err := s.jobs.Settle(ctx, now, changes, dst)
	l := line{Now: now}
	for i := range changes {
		if err == nil && out[len(dst)+i].Err == nil {
			l.Settle = append(l.Settle, records[i])
		}
	}
	if l.Settle == nil {
		return out, err
	}
	return out, s.write(l)
}

// Extend implements storage.Storage.
func (s *Storage) Extend(ctx context.Context, now time.Time,
	extensions []storage.Extension) ([]string, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	lost, err := s.jobs.Extend(ctx, now, extensions)
	if err != nil || len(lost) == len(extensions) {
		return lost, err
	}
	list := make([]extension, len(extensions))
	for i, x := range extensions {
		list[i] = extension{x.Held, x.Progress, x.Checkpoint, x.Lease}
	}
	return lost, s.write(line{Now: now, Extend: list})
}

// Due implements storage.Storage.
func (s *Storage) Due(ctx context.Context, now time.Time, max int,
	buf []storage.Record) (storage.Due, error) {
	if err := s.begin(); err != nil {
		return storage.Due{}, err
	}
	defer s.mu.Unlock()
	d, err := s.jobs.Due(ctx, now, max, buf)
	if err != nil || len(d.Promoted)+len(d.Expired)+len(d.Stalled) == 0 {
		return d, err
	}
	return d, s.write(line{Now: now, Due: max})
}

// Delete implements storage.Storage.
func (s *Storage) Delete(ctx context.Context, ids []string) (int, error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	n, err := s.jobs.Delete(ctx, ids)
	if err != nil || n == 0 {
		return n, err
	}
	return n, s.write(line{Delete: ids})
}

// Prune implements storage.Storage.
func (s *Storage) Prune(ctx context.Context, p storage.Prune) (storage.Pruned, error) {
	if err := s.begin(); err != nil {
		return storage.Pruned{}, err
	}
	defer s.mu.Unlock()
	out, err := s.jobs.Prune(ctx, p)
	if err != nil || len(out.IDs) == 0 {
		return out, err
	}
	return out, s.write(line{Prune: &p})
}

// ClaimedBy implements storage.Storage.
func (s *Storage) ClaimedBy(ctx context.Context, worker string) ([]storage.Record, error) {
	return s.jobs.ClaimedBy(ctx, worker)
}

// Get implements storage.Storage.
func (s *Storage) Get(ctx context.Context, id string) (storage.Record, error) {
	return s.jobs.Get(ctx, id)
}

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, q storage.Query) (storage.Page, error) {
	return s.jobs.List(ctx, q)
}

// Counts implements storage.Storage.
func (s *Storage) Counts(ctx context.Context) ([]storage.Count, error) { return s.jobs.Counts(ctx) }

// Close implements storage.Storage.
func (s *Storage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return s.jobs.Close()
}
