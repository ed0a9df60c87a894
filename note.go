package ojs

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"
)

// historyNotes is how many notes the history of a job keeps. Older ones are dropped
// first.
const historyNotes = 20

// Note is an entry in the history of a job (JobInfo.History): an attempt that did not
// count, or what a call has changed. Failed attempts are in JobInfo.Errors.
type Note struct {
	At   time.Time
	What NoteKind
	By   string // the person or program that did it (WithActor); "": it gave no name
	Text string // for a person: what was changed, or the replay rule that did it

	// Of an attempt that did not count.
	Attempt   int
	StartedAt time.Time
	Worker    string

	Until time.Time // when the job was due then; zero: at once, or it stayed
}

// NoteKind says what a note is about.
type NoteKind string

// The kinds of notes. Cancelled and activated are noted only with a name (WithActor):
// their times are in the job.
const (
	NoteSnoozed     NoteKind = "snoozed"     // the handler put the job off
	NoteReturned    NoteKind = "returned"    // a stop interrupted the attempt
	NoteRetried     NoteKind = "retried"     // it was made available by a call, or replayed by a rule
	NoteRescheduled NoteKind = "rescheduled" // it was given another time
	NotePriority    NoteKind = "priority"    // its priority was changed
	NoteMoved       NoteKind = "moved"       // it was moved to another queue
	NoteEdited      NoteKind = "edited"      // its args or meta were changed
	NoteActivated   NoteKind = "activated"
	NoteCancelled   NoteKind = "cancelled"
)

type actorKey struct{}

// maxActor is the longest name of an actor, in bytes.
const maxActor = 128

// WithActor names the person or program on whose behalf calls with the context change
// jobs, such as the user of a dashboard. The name is in the history of the jobs and in
// log lines. It is cut to 128 bytes.
func WithActor(ctx context.Context, name string) context.Context {
	if len(name) > maxActor {
		name = name[:maxActor]
		for !utf8.ValidString(name) && len(name) > maxActor-utf8.UTFMax {
			name = name[:len(name)-1]
		}
	}
	name = strings.ToValidUTF8(strings.ReplaceAll(name, "\x00", ""), "\uFFFD")
	return context.WithValue(ctx, actorKey{}, name)
}

// Actor returns the name that WithActor was given, "" if none.
func Actor(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}

// Note adds an entry to the history of the job. It does not write to the one it has, so
// copies of the job stay as they are.
func (j *JobInfo) Note(n Note) {
	keep := j.History[max(len(j.History)-historyNotes+1, 0):]
	history := make([]Note, 0, len(keep)+1)
	j.History = append(append(history, keep...), n)
}
