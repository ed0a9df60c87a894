package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/cron"
)

type cronSyncVerb struct {
	File   string `arg:"" help:"The file, or - for the standard input."`
	Prefix string `placeholder:"TEXT" help:"Only entries whose names begin so: others stay."`
	Yes    bool   `short:"y" help:"Do it. Without it, the verb only shows what would change."`
}

func (cronSyncVerb) Help() string {
	return `It sets the entries of a file, and removes the others. The file is a JSON array, such as

  [{"name": "digest.daily", "schedule": "0 7 * * *", "time_zone": "Europe/Berlin",
    "job": {"type": "email.digest", "args": [], "queue": "mail"}}]

Members beside these: description, overlap, missed, missed_limit, gap, run_on_start,
template and paused, as in package cron. An entry that a person has paused stays paused.`
}

// cronLine is an entry in a file.
type cronLine struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schedule    string          `json:"schedule"`
	TimeZone    string          `json:"time_zone"`
	Job         json.RawMessage `json:"job"`
	Overlap     cron.Overlap    `json:"overlap"`
	Missed      cron.Missed     `json:"missed"`
	MissedLimit int             `json:"missed_limit"`
	Gap         cron.Gap        `json:"gap"`
	RunOnStart  bool            `json:"run_on_start"`
	Template    bool            `json:"template"`
	Paused      bool            `json:"paused"`
}

// Run makes the entries of the storage those of a file.
func (v *cronSyncVerb) Run(c *call) error {
	stored, err := c.cron()
	if err != nil {
		return err
	}
	entries, err := v.read(c)
	if err != nil {
		return err
	}
	list, err := stored.List(c.ctx)
	if err != nil {
		return err
	}
	changes := v.changes(entries, list)
	if v.Yes {
		if _, err := stored.Sync(c.acting(), v.Prefix, entries...); err != nil {
			return err
		}
	}
	if err := show(c, listing[cronChange]{
		columns: []column{{title: "ENTRY", long: true}, {title: "CHANGE"}},
		row:     func(ch cronChange) []cell { return []cell{of(ch.Name), of(ch.Change)} },
		id:      func(ch cronChange) string { return ch.Name },
		none:    "no entries",
	}, all(changes), nil); err != nil || v.Yes {
		return err
	}
	_, err = fmt.Fprintln(c.errs, "nothing is changed; run it again with --yes")
	return err
}

// cronChange is what a sync does to an entry.
type cronChange struct {
	Name   string `json:"name"`
	Change string `json:"change"` // new, set or remove
}

func (v *cronSyncVerb) changes(entries, stored []cron.Entry) (list []cronChange) {
	has := func(list []cron.Entry, name string) bool {
		return slices.ContainsFunc(list, func(e cron.Entry) bool { return e.Name == name })
	}
	for i := range entries {
		change := "new"
		if has(stored, entries[i].Name) {
			change = "set"
		}
		list = append(list, cronChange{entries[i].Name, change})
	}
	for i := range stored {
		if name := stored[i].Name; strings.HasPrefix(name, v.Prefix) && !has(entries, name) {
			list = append(list, cronChange{name, "remove"})
		}
	}
	return list
}

// read reads the entries of the file.
func (v *cronSyncVerb) read(c *call) (list []cron.Entry, err error) {
	var text []byte
	if v.File == "-" {
		text, err = io.ReadAll(c.input())
	} else if text, err = os.ReadFile(v.File); err != nil {
		err = usageError{err}
	}
	if err != nil {
		return nil, err
	}
	var lines []cronLine
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&lines); err != nil {
		var wrong *json.UnmarshalTypeError // whose text has types of Go
		if errors.As(err, &wrong) {
			err = fmt.Errorf("%s is of type %s", cmp.Or(wrong.Field, "the whole"), wrong.Value)
		}
		return nil, usageError{fmt.Errorf("the file is no JSON array of entries: %w", err)}
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, usageError{errors.New("the file has more than a JSON array")}
	}
	for _, l := range lines {
		job, err := ojs.ParseDraft(l.Job)
		if err != nil {
			return nil, usageError{fmt.Errorf("entry %s: %w", clean(l.Name), err)}
		}
		list = append(list, cron.Entry{Name: l.Name, Description: l.Description, Schedule: l.Schedule,
			TimeZone: l.TimeZone, Job: job, Overlap: l.Overlap, Missed: l.Missed, MissedLimit: l.MissedLimit,
			Gap: l.Gap, RunOnStart: l.RunOnStart, Template: l.Template, Paused: l.Paused})
	}
	return list, nil
}
