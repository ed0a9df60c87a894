package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/following"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

// call is one run of a verb. It opens the storage when the verb first asks for it.
type call struct {
	*program
	ctx      context.Context
	flags    *flags
	settings *settings
	style    style
	parser   *kong.Kong
	kong     *kong.Context
	code     int // the exit code of a run without an error

	opened  storage.Storage
	closing func() error
}

// store opens the storage of the call.
func (c *call) store() (storage.Storage, error) {
	if c.opened != nil {
		return c.opened, nil
	}
	if c.flags.Storage == "memory" && c.storage == nil && !strings.HasPrefix(c.kong.Command(), "serve") {
		return nil, usageError{fixError{
			errors.New("the storage in memory is empty, and lost when the command ends"),
			"use postgres://… or the path of a SQLite file"}}
	}
	if _, _, err := c.address(); err != nil {
		return nil, err
	}
	st, closing, err := c.open(c.ctx, c.flags.Storage, c.flags.Schema)
	if err != nil {
		return nil, err
	}
	c.opened, c.closing = st, closing
	return st, nil
}

// address tells which storage --storage names. It refuses the address of a server.
func (c *call) address() (k kind, path string, err error) {
	k, path, err = addressOf(c.flags.Storage, c.flags.Schema)
	if k == onServer {
		err = needsStorage(c.kong.Selected().FullPath())
	}
	return k, path, err
}

func (c *call) close() error {
	if c.closing == nil {
		return nil
	}
	return c.closing()
}

// jobs reads the jobs of the storage.
func (c *call) jobs() (*inspect.Jobs, error) {
	op, err := c.operator()
	if err != nil {
		return nil, err
	}
	return op.Jobs().Jobs, nil
}

// operator has the verbs of an operator.
func (c *call) operator() (*operate.Operator, error) {
	eng, err := c.engine()
	if err != nil {
		return nil, err
	}
	return operate.Open(c.opened, c.clock, eng), nil
}

// engine makes an engine that enqueues and does not run.
func (c *call) engine() (*engine.Engine[any], error) {
	st, err := c.store()
	if err != nil {
		return nil, err
	}
	opts := []engine.Option{engine.WithName("ojs"), engine.WithClock(c.clock), engine.WithoutReports(),
		engine.WithLogger(slog.New(slog.DiscardHandler))}
	if c.rand != nil {
		opts = append(opts, engine.WithRand(c.rand))
	}
	return engine.New[any](st, opts...)
}

// acting is the context of a change, with the name of the person who makes it.
func (c *call) acting() context.Context {
	name := c.flags.Actor
	if name == "" {
		name = c.env("USER")
	}
	return ojs.WithActor(c.ctx, name)
}

// now is the time by the clock of the storage, if it has one.
func (c *call) now() time.Time {
	if c.opened == nil {
		return c.clock.Now()
	}
	return following.IfWall(c.clock, c.opened).Now()
}

// newID makes a UUIDv7.
func (c *call) newID() string {
	u := uuid.Must(uuid.NewV7())
	if c.rand != nil {
		binary.BigEndian.PutUint64(u[:8], uint64(c.now().UnixMilli())<<16|0x7000|c.rand.Uint64()>>52)
		binary.BigEndian.PutUint64(u[8:], 1<<63|c.rand.Uint64()>>2)
	}
	return u.String()
}

// input is the standard input. It ends with the call, although a read of a terminal or a
// pipe may not end.
func (c *call) input() io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, c.in)
		w.CloseWithError(err)
	}()
	context.AfterFunc(c.ctx, func() { w.CloseWithError(c.ctx.Err()) })
	return r
}

// wait waits for d. It reports false if the call ends before.
func (c *call) wait(d time.Duration) bool {
	t := c.clock.Timer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}
