package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/storage/keyed"
	"github.com/ojsengine/ojs/storage/keyed/driver"
	"github.com/ojsengine/ojs/storage/sqlite/internal/legacy"
)

// store implements driver.DB over one table. One connection writes, and others read
// snapshots.
type store struct {
	path   string
	config config
	file   os.FileInfo // as which it is noted to be open
	old    bool        // it has tables of an older version
	turn   *turn
	holder *holder    // nil: it has none
	writer chan *conn // holds the connection unless a transaction has it
	reader chan *conn
	lent   atomic.Bool // a function of Within has the writer
	once   sync.Once
	ended  chan struct{} // closed by Close

	changed  atomic.Pointer[func()] // of Watch
	seen     int                    // the version of the data, as the writer has last seen it
	watching sync.WaitGroup
}

// conn is a connection with its statements.
type conn struct {
	*zombiezen.Conn
	arena                            []byte // what the transaction has read
	begin, pin, commit, rollback     *zombiezen.Stmt
	get, scan, scanBack, put, delete *zombiezen.Stmt
}

// table is the storage's own table. There is no other.
const table = "CREATE TABLE IF NOT EXISTS ojs_kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) STRICT, WITHOUT ROWID"

// The statements of transactions. Each finds its rows by the primary key.
const (
	pin      = "SELECT 1 FROM ojs_kv LIMIT 1"
	get      = "SELECT v FROM ojs_kv WHERE k = ?"
	scan     = "SELECT k, v FROM ojs_kv WHERE k >= ? AND k < ? ORDER BY k LIMIT ?"
	scanBack = "SELECT k, v FROM ojs_kv WHERE k >= ? AND k < ? ORDER BY k DESC LIMIT ?"
	put      = "REPLACE INTO ojs_kv VALUES (?, ?)"
	remove   = "DELETE FROM ojs_kv WHERE k = ?"
)

func newStore(path string, cfg config) *store {
	return &store{path: path, config: cfg, writer: make(chan *conn, 1), reader: make(chan *conn, cfg.readers),
		ended: make(chan struct{})}
}

// open opens the file, and the storage in it.
func (s *store) open(ctx context.Context) (*Storage, error) {
	if err := s.connectAll(ctx); err != nil {
		return nil, err
	}
	k, err := keyed.Open(s, "sqlite")
	if err == nil && s.old {
		err = s.move(ctx, k)
	}
	if err == nil {
		s.holder = newHolder(s.path, s.file.Mode().Perm())
		err = s.holder.enter(ctx, k)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.watching.Go(func() {
		s.watch(func(changed bool) { s.holder.look(k, changed) })
	})
	return &Storage{contract: k, keyed: k, store: s}, nil
}

// move moves what a file of an older version holds into the table, in one transaction.
func (s *store) move(ctx context.Context, k *keyed.Storage) error {
	return k.Within(ctx, func(ctx context.Context, t driver.Tx) error {
		conn := t.(*tx).Conn
		version, err := number(conn, "PRAGMA user_version")
		if err != nil || version == schema { // another process has done it
			return err
		}
		if err := legacy.Move(ctx, conn, k); err != nil {
			return err
		}
		return run(conn, fmt.Sprintf("PRAGMA user_version = %d", schema))
	})
}

// connectAll makes the connections to a file with an up to date schema.
func (s *store) connectAll(ctx context.Context) (err error) {
	first, err := s.connectFirst(ctx)
	if err != nil {
		return err
	}
	all := []*zombiezen.Conn{first}
	defer func() {
		if err == nil {
			return
		}
		for _, c := range all {
			err = errors.Join(err, c.Close())
		}
		letGo(s.file)
	}()
	// When several processes open a new file, SQLite tells some at once that it is
	// locked, where waiting would not help.
	first.SetBusyTimeout(0)
	err = (&patience{ctx, wall.Now(), s.config.busy}).untilFree(func() error {
		if s.old, err = migrate(first, s.config.asIs); err != nil {
			return err
		}
		return configure(first, s.config)
	})
	if err != nil {
		return err
	}
	for range s.config.readers {
		r, err := s.connect(ctx)
		if err != nil {
			return err
		}
		all = append(all, r)
		if err := run(r, "PRAGMA query_only = 1"); err != nil {
			return err
		}
	}
	if s.seen, err = number(first, "PRAGMA data_version"); err != nil {
		return err
	}
	for i, z := range all {
		idle, begin := s.reader, "BEGIN"
		if i == 0 {
			idle, begin = s.writer, "BEGIN IMMEDIATE"
		}
		c, err := prepare(z, begin)
		if err != nil {
			return err
		}
		idle <- c
	}
	s.turn, err = openTurn(s.path, s.file.Mode().Perm())
	return err
}

// Watch implements driver.Watcher.
func (s *store) Watch(changed func()) { s.changed.Store(&changed) }

// watch calls look every so often, and says whether others have written to the file
// meanwhile.
func (s *store) watch(look func(changed bool)) {
	ticker := wall.Ticker(s.config.poll)
	defer ticker.Stop()
	for {
		select {
		case <-s.ended:
			return
		case <-ticker.C:
		}
		changed := s.version()
		if tell := s.changed.Load(); changed && tell != nil {
			(*tell)()
		}
		look(changed)
	}
}

// version reports whether the version of the data is another one: other connections have
// committed, and no other one of this storage writes.
func (s *store) version() (changed bool) {
	select {
	case c := <-s.writer:
		defer func() { s.writer <- c }()
		v, err := number(c.Conn, "PRAGMA data_version")
		if changed = err == nil && v != s.seen; changed {
			s.seen = v
		}
	case <-s.ended:
	}
	return changed
}

// connectFirst makes a connection to a file that has been looked at.
func (s *store) connectFirst(ctx context.Context) (*zombiezen.Conn, error) {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if !isOpen(s.path) {
		if err := checkFile(s.path); err != nil {
			return nil, err
		}
		if s.config.modeGiven {
			if err := makeFile(s.path, s.config.mode); err != nil {
				return nil, err
			}
		}
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	if s.file, err = keepOpen(s.path); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (s *store) connect(ctx context.Context) (*zombiezen.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	flags := []zombiezen.OpenFlags{zombiezen.OpenReadWrite}
	if !s.config.asIs {
		flags = append(flags, zombiezen.OpenCreate)
	}
	conn, err := zombiezen.OpenConn(s.path, flags...)
	if err != nil {
		return nil, err
	}
	conn.SetBusyTimeout(s.config.busy)
	return conn, nil
}

// prepare makes the statements of a connection to a file that has the table.
func prepare(z *zombiezen.Conn, begin string) (*conn, error) {
	c := &conn{Conn: z}
	for _, p := range []struct {
		stmt **zombiezen.Stmt
		sql  string
	}{
		{&c.begin, begin}, {&c.commit, "COMMIT"}, {&c.rollback, "ROLLBACK"}, {&c.pin, pin},
		{&c.get, get}, {&c.scan, scan}, {&c.scanBack, scanBack}, {&c.put, put}, {&c.delete, remove},
	} {
		var err error
		if *p.stmt, err = z.Prepare(p.sql); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func exec(stmt *zombiezen.Stmt) error {
	_, err := stmt.Step()
	return ended(stmt, err)
}

// ended resets a statement. If it has failed, Reset says so again.
func ended(stmt *zombiezen.Stmt, err error) error {
	if reset := stmt.Reset(); err == nil {
		err = reset
	}
	return wrap(err)
}

// wrap marks an error of SQLite as such.
func wrap(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "ojs: ") || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("ojs: sqlite: %w", err)
}

// Limits implements driver.DB.
func (s *store) Limits() driver.Limits { return driver.Limits{Durable: true, Shared: true} }

// Begin implements driver.DB.
func (s *store) Begin(ctx context.Context, write bool) (driver.Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := &tx{store: s, ctx: ctx, idle: s.reader}
	if write {
		t.idle = s.writer
	}
	if err := t.take(); err != nil {
		return nil, err
	}
	t.arena = t.arena[:0]
	var err error
	if write {
		err = s.begin(ctx, t.conn)
	} else {
		t.SetInterrupt(ctx.Done())
		if err = exec(t.conn.begin); err == nil { // a snapshot begins with the first read
			err = exec(t.pin)
		}
	}
	if err != nil {
		t.Discard()
		return nil, t.failure(err)
	}
	return t, nil
}

// begin begins a transaction that writes when it is this process's turn, or fails after
// the busy timeout.
func (s *store) begin(ctx context.Context, c *conn) error {
	p := patience{ctx, wall.Now(), s.config.busy}
	for !s.turn.lock() && p.wait() {
	}
	defer s.turn.unlock()
	return p.untilFree(func() error { return exec(c.begin) })
}

// take waits for a connection. If a function of Within has it for longer than the busy
// timeout, take fails, since the function may wait for this transaction.
func (t *tx) take() error {
	select {
	case t.conn = <-t.idle:
	default:
		late := wall.Ticker(max(t.store.config.busy, time.Millisecond))
		defer late.Stop()
		for t.conn == nil {
			select {
			case t.conn = <-t.idle:
			case <-t.store.ended:
				return driver.ErrClosed
			case <-t.ctx.Done():
				return t.ctx.Err()
			case <-late.C:
				if t.idle == t.store.writer && t.store.lent.Load() {
					return ErrWithin
				}
			}
		}
	}
	select {
	case <-t.store.ended:
		t.Discard()
		return driver.ErrClosed
	default:
		return nil
	}
}

// Close implements driver.DB.
func (s *store) Close() (err error) {
	s.once.Do(func() {
		close(s.ended)
		s.watching.Wait()
		for range cap(s.reader) {
			err = errors.Join(err, (<-s.reader).Close())
		}
		err = errors.Join(err, (<-s.writer).Close(), s.turn.close())
		if s.holder != nil {
			err = errors.Join(err, s.holder.leave())
		}
		err = wrap(err)
		letGo(s.file)
	})
	return err
}

// tx is a transaction.
type tx struct {
	*conn // nil: it has ended
	store *store
	ctx   context.Context
	idle  chan *conn
	err   error // of a Write: the transaction is of no more use
}

// failure is the error of a transaction whose context may have ended.
func (t *tx) failure(err error) error {
	if zombiezen.ErrCode(err).ToPrimary() == zombiezen.ResultInterrupt && t.ctx.Err() != nil {
		return t.ctx.Err()
	}
	return err
}

// column copies a column.
func (t *tx) column(stmt *zombiezen.Stmt, i int) []byte {
	n := stmt.ColumnLen(i)
	if n > cap(t.arena)-len(t.arena) {
		t.arena = make([]byte, 0, max(n, 16<<10))
	}
	at := len(t.arena)
	t.arena = t.arena[:at+n]
	stmt.ColumnBytes(i, t.arena[at:])
	return t.arena[at : at+n : at+n]
}

// Get implements driver.Tx.
func (t *tx) Get(keys [][]byte, dst [][]byte) ([][]byte, error) {
	for _, k := range keys {
		t.get.BindBytes(1, k)
		found, err := t.get.Step()
		var v []byte
		if found {
			v = t.column(t.get, 0)
		}
		if err := ended(t.get, err); err != nil {
			return dst, t.failure(err)
		}
		dst = append(dst, v)
	}
	return dst, nil
}

// Scan implements driver.Tx.
func (t *tx) Scan(from, to []byte, max int, reverse bool, dst []driver.Pair) ([]driver.Pair, error) {
	stmt := t.scan
	if reverse {
		stmt = t.scanBack
	}
	stmt.BindBytes(1, from)
	stmt.BindBytes(2, to)
	stmt.BindInt64(3, int64(max))
	for {
		more, err := stmt.Step()
		if err != nil || !more {
			return dst, t.failure(ended(stmt, err))
		}
		dst = append(dst, driver.Pair{Key: t.column(stmt, 0), Value: t.column(stmt, 1)})
	}
}

// Peek implements driver.Tx.
func (t *tx) Peek(from, to []byte, max int, dst []driver.Pair) ([]driver.Pair, error) {
	return t.Scan(from, to, max, false, dst)
}

// Write implements driver.Writer. After an error the transaction cannot be committed.
func (t *tx) Write(writes []driver.Pair) error {
	if t.err == nil && t.AutocommitEnabled() {
		t.err = errEnded
	}
	for _, w := range writes {
		stmt := t.put
		if w.Value == nil {
			stmt = t.delete
		} else {
			stmt.BindBytes(2, w.Value)
		}
		stmt.BindBytes(1, w.Key)
		if t.err == nil {
			t.err = exec(stmt)
		}
	}
	if t.err != nil && t.AutocommitEnabled() { // as after a full disk: f of Within may go on
		_ = exec(t.begin)
	}
	return t.err
}

// Commit implements driver.Tx.
func (t *tx) Commit(writes []driver.Pair) error {
	defer t.Discard()
	t.SetInterrupt(nil) // a function of Within may have left it, and statements that this resets
	if err := t.Write(writes); err != nil {
		return err
	}
	return exec(t.commit)
}

// Discard implements driver.Tx.
func (t *tx) Discard() {
	if t.conn == nil {
		return
	}
	t.SetInterrupt(nil) // the transaction ends even if its context has ended
	if !t.AutocommitEnabled() {
		_ = exec(t.rollback)
	}
	t.idle <- t.conn
	t.conn = nil
}
