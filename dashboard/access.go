package dashboard

import (
	"errors"
	"net/http"
)

// Authorizer says whether a request may do an action: nil permits it. The text of an
// error is shown on the page that refuses. It is asked before a button is shown and again
// when the action is done, and may be called concurrently.
type Authorizer func(r *http.Request, a Action) error

// Verb is what an action does.
type Verb string

// The verbs. Read is asked for every page.
const (
	Read   Verb = "read"
	Retry  Verb = "retry"  // a job or jobs, or the failed steps of a workflow
	Cancel Verb = "cancel" // a job or jobs, or a workflow
	Delete Verb = "delete" // a job or jobs
	Run    Verb = "run"    // make pending or waiting jobs available at once
	Copy   Verb = "copy"   // enqueue copies of a job or jobs

	Enqueue Verb = "enqueue" // a new job

	Edit       Verb = "edit"       // the args and metadata of a job
	Move       Verb = "move"       // a job or jobs, to another queue: asked for both queues
	Reschedule Verb = "reschedule" // a job or jobs
	Prioritize Verb = "prioritize" // a job or jobs

	Pause  Verb = "pause"  // a queue, a type, everything or a recurring entry
	Resume Verb = "resume" // a queue, a type, everything, a recurring entry or a node
	Drain  Verb = "drain"  // a queue
	Purge  Verb = "purge"  // a queue: cancel its waiting jobs, and delete its ended ones
	Remove Verb = "remove" // a recurring entry
	Quiet  Verb = "quiet"  // a worker or a node

	Terminate Verb = "terminate" // a node

	// Configure is how this engine serves a queue. If the queue has bounds over all
	// engines, Set is asked for its limit too.
	Configure Verb = "configure"

	Set   Verb = "set"   // the bounds of a limit, or a recurring entry: make or change it
	Clear Verb = "clear" // the bounds of a limit
	Block Verb = "block" // a limit, or end its block
)

// Action is what a request wants to do.
type Action struct {
	Do Verb
	On string // job, jobs, queue, type, everything, cron, workflow, worker, node, limit; "" with Read
	// Name is the id of the job or node, the name of the queue, type, entry or worker, or
	// kind and name of the limit, such as "key/mail:acme"; "" for a new job, for many
	// jobs, for everything and with Read.
	Name  string
	Queue string // of the job or jobs; "" if they may be in several
	Type  string // of the job or jobs; "" if they may be of several

	Engine string // the name that NewMany was given; "" with New
}

// AllowAll is the Authorizer that permits every action to every request. Use it where a
// middleware has already decided.
func AllowAll(*http.Request, Action) error { return nil }

var errReadOnly = errors.New("this dashboard only reads: give dashboard.New an authorizer (WithAuthorizer)")

// may returns nil if the request may do the action.
func (h *Handler) may(r *http.Request, a Action) error {
	a.Engine = h.name
	if h.conf.authorize == nil {
		if a.Do == Read {
			return nil
		}
		return errReadOnly
	}
	return h.conf.authorize(r, a)
}
