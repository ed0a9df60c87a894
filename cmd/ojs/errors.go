package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/storage/postgres"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// The exit codes. docs/command.md has them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2   // the arguments, a setting, the input, or what a server refuses
	exitNotFound    = 3   // no such job, entry or workflow
	exitRefused     = 4   // the state of a job or queue forbids it, for one of the jobs at least
	exitFindings    = 5   // doctor has found faults
	exitInterrupted = 130 // as of a process that SIGINT has ended
)

// exitCodes are what the manual page says of them.
var exitCodes = []struct {
	code  int
	means string
}{
	{exitDone, "done"}, {exitFailed, "the storage failed"},
	{exitUsage, "wrong arguments, settings or input, or a call that a server does not offer, or refuses to the key"},
	{exitNotFound, "there is no such job, entry or workflow"},
	{exitRefused, "the state of a job, a queue or an export forbids it"},
	{exitFindings, "doctor or migrate found a fault"},
	{exitInterrupted, "stopped by a signal; serve ends with 0"},
}

// usageError is an error of the arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// refusedError is an error of what the state of the storage or of a file forbids.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// fixError is an error with its remedy.
type fixError struct {
	error
	fix string
}

func (e fixError) Unwrap() error { return e.error }

// silentError is an exit code whose reason is written.
type silentError int

func (e silentError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report writes an error with its fix, and returns the exit code.
func (c *call) report(err error) int {
	var silent silentError
	switch {
	case err == nil:
		return c.code
	case errors.As(err, &silent):
		return int(silent)
	case errors.Is(err, context.Canceled) && c.ctx.Err() != nil:
		var fix fixError
		if errors.As(err, &fix) {
			fmt.Fprintln(c.errs, "ojs: interrupted\nfix: "+fix.fix)
		}
		return exitInterrupted
	}
	fmt.Fprintln(c.errs, "ojs: "+plainError(err))
	var line *inspect.FilterError
	if errors.As(err, &line) && line.Line != "" {
		fmt.Fprintf(c.errs, "  %s\n  %s^\n", clean(line.Line), strings.Repeat(" ", line.Column-1))
	}
	if fix := fixOf(err); fix != "" {
		fmt.Fprintln(c.errs, "fix: "+fix)
	}
	return codeOf(err)
}

// plainError is the text of an error without the prefix of each package, on one line.
func plainError(err error) string {
	text := strings.ReplaceAll(err.Error(), "ojs: ", "")
	return clean(strings.ReplaceAll(text, "\n", "; "))
}

func codeOf(err error) int {
	var usage usageError
	switch {
	case errors.As(err, &usage), errors.Is(err, ojs.ErrInvalid),
		errors.Is(err, ojs.ErrUnsupported), forbidden(err):
		return exitUsage
	case errors.Is(err, ojs.ErrQuarantined): // which is ErrNotFound, too
		return exitRefused
	case errors.Is(err, ojs.ErrNotFound), errors.Is(err, ojs.ErrPruned):
		return exitNotFound
	case isRefusal(err), errors.As(err, new(refusedError)):
		return exitRefused
	}
	return exitFailed
}

// isRefusal reports whether the state of a job or queue forbids a change.
func isRefusal(err error) bool {
	for _, target := range []error{ojs.ErrTransition, ojs.ErrDuplicate, ojs.ErrQueueFull,
		ojs.ErrQueueDraining, ojs.ErrDependency, ojs.ErrDropped} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// fixOf is what to do about an error, "" if the error says it or nothing is known.
func fixOf(err error) string {
	var fix fixError
	var cannotConnect *pgconn.ConnectError
	var network *net.OpError
	var queue *ojs.QueueError
	switch {
	case errors.As(err, &fix):
		return fix.fix
	case errors.Is(err, sqlite.ErrOlder), errors.Is(err, postgres.ErrOlder):
		return "stop older programs, then: ojs migrate up"
	case errors.Is(err, sqlite.ErrMissing):
		return "name another file, or make this one: ojs migrate up"
	case errors.Is(err, postgres.ErrMissing):
		return "name another schema with --schema, or make this one: ojs migrate up"
	case errors.Is(err, sqlite.ErrNewer), errors.Is(err, postgres.ErrNewer):
		return "go install github.com/ojsengine/ojs/cmd/ojs@latest"
	case errors.Is(err, ojs.ErrQuarantined):
		return "ojs quarantine"
	case errors.Is(err, postgres.ErrPrivilege):
		return "run the statements of postgres.Grants as the owner of the schema"
	case errors.As(err, &cannotConnect), errors.As(err, &network) && network.Op == "dial":
		return "check the address and that the server runs; ojs config shows where the address is from"
	case errors.As(err, &queue) && queue.Err == ojs.ErrQueueDraining:
		return "ojs queues resume " + queue.Queue
	case forbidden(err):
		return "set OJS_KEY, or OJS_KEY_FILE, to a key that may do that"
	case errors.Is(err, ojs.ErrUnsupported):
		return fixStorage
	}
	return ""
}
