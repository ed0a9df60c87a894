package main

import (
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

type quarantineVerb struct {
	List    quarantineListVerb    `cmd:"" default:"withargs" help:"List the records that do not decode."`
	Release quarantineReleaseVerb `cmd:"" help:"Put records back that were corrected."`
	Delete  quarantineDeleteVerb  `cmd:"" help:"Delete records."`
}

type quarantineListVerb struct{}

// Run lists the quarantine.
func (quarantineListVerb) Run(c *call) error {
	op, err := c.operator()
	if err != nil {
		return err
	}
	return show(c, listing[storage.Quarantined]{
		columns: []column{{title: "KEY"}, {title: "KIND"}, {title: "NAME", long: true, rank: 1},
			{title: "SINCE"}, {title: "REASON", long: true}},
		row: func(q storage.Quarantined) []cell {
			return []cell{of(q.Key), of(string(q.Kind)), of(q.Name), of(ago(q.At, c.now())), tinted(red,
				q.Reason)}
		},
		id:   func(q storage.Quarantined) string { return q.Key },
		none: "the quarantine is empty",
	}, op.Quarantine().List(c.ctx), nil)
}

// quarantineKeys are the keys of records.
type quarantineKeys struct {
	Keys []string `arg:"" name:"key" help:"Keys of records."`
}

func (v *quarantineKeys) each(c *call, done string, f func(q *operate.Quarantine, key string) error) error {
	op, err := c.operator()
	if err != nil {
		return err
	}
	for _, key := range v.Keys {
		if err := f(op.Quarantine(), key); err != nil {
			return err
		}
		if err := c.done(key, "record "+key+" is "+done); err != nil {
			return err
		}
	}
	return nil
}

type quarantineReleaseVerb struct{ quarantineKeys }

func (quarantineReleaseVerb) Help() string {
	return "A record is corrected in the quarantine of the storage, such as the table quarantined_job of PostgreSQL."
}

// Run puts records back.
func (v *quarantineReleaseVerb) Run(c *call) error {
	return v.each(c, "back", func(q *operate.Quarantine, key string) error {
		return q.Release(c.acting(),
			key)
	})
}

type quarantineDeleteVerb struct{ quarantineKeys }

// Run deletes records.
func (v *quarantineDeleteVerb) Run(c *call) error {
	return v.each(c, "deleted", func(q *operate.Quarantine, key string) error {
		return q.Delete(c.acting(),
			key)
	})
}
