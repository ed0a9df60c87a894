package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/operate"
	"github.com/ojsengine/ojs/storage"
)

type limitsVerb struct {
	List  limitsListVerb  `cmd:"" default:"withargs" help:"List limits."`
	Set   limitsSetVerb   `cmd:"" help:"Set the bounds of a limit."`
	Clear limitsClearVerb `cmd:"" help:"Remove the bounds that were set."`
	Block limitsBlockVerb `cmd:"" help:"Let no job of a limit start for a while."`
}

// limitRow is a limit in JSON.
type limitRow struct {
	Kind    storage.LimitKind `json:"kind"`
	Name    string            `json:"name"`
	Active  int               `json:"active"`
	Waiting int               `json:"waiting"`
	Bounds  string            `json:"bounds"`
	Set     bool              `json:"set"`
	Until   time.Time         `json:"until,omitzero"`
	Blocked time.Time         `json:"blocked_until,omitzero"`
	Opens   time.Time         `json:"opens,omitzero"`
}

type limitsListVerb struct{}

// Run lists the limits of keys, queues and types.
func (limitsListVerb) Run(c *call) error {
	op, err := c.operator()
	if err != nil {
		return err
	}
	var rows []limitRow
	for _, kind := range []storage.LimitKind{storage.LimitQueue, storage.LimitType, storage.LimitKey} {
		limits, err := c.limitsOf(op, kind)
		if err != nil {
			return err
		}
		for _, l := range limits {
			rows = append(rows, limitRow{l.Kind, l.Name, l.Active, l.Waiting, bounds(l.Bounds),
				l.Setting != nil,
				l.Until, l.BlockedUntil, l.Opens})
		}
	}
	return show(c, listing[limitRow]{
		columns: []column{{title: "LIMIT", long: true}, {title: "ACTIVE", right: true},
			{title: "WAITING", right: true}, {title: "BOUNDS", long: true}, {title: "NOW"}, {title: "SET",
				rank: 1}},
		row: func(l limitRow) []cell {
			set := ""
			if l.Set {
				set = "by hand"
				if !l.Until.IsZero() {
					set += " until " + moment(l.Until)
				}
			}
			return []cell{of(string(l.Kind) + "/" + l.Name), of(number(l.Active)), of(number(l.Waiting)),
				of(l.Bounds),
				limitNow(l, c.now()), of(set)}
		},
		id:   func(l limitRow) string { return string(l.Kind) + "/" + l.Name },
		none: "no limits",
	}, all(rows), nil)
}

// limitNow says whether a limit lets a job start.
func limitNow(l limitRow, now time.Time) cell {
	switch {
	case l.Blocked.After(now):
		return tinted(red, "blocked for "+span(l.Blocked.Sub(now)))
	case l.Opens.After(now):
		return tinted(yellow, "opens "+ago(l.Opens, now))
	case strings.HasPrefix(l.Bounds, "none at once"):
		return tinted(red, "closed")
	}
	return tinted(green, "open")
}

// limitsOf are all limits of a kind.
func (c *call) limitsOf(op *operate.Operator, kind storage.LimitKind) (list []operate.Limit, err error) {
	q := operate.LimitQuery{Kind: kind, Limit: 1000}
	for {
		page, err := op.Limits().List(c.ctx, q)
		if err != nil {
			return nil, err
		}
		if list = append(list, page...); len(page) < q.Limit {
			return list, nil
		}
		q.After = page[len(page)-1].Name
	}
}

// limitName is the argument that names a limit.
type limitName struct {
	Name string `arg:"" name:"limit" help:"queue/NAME, type/NAME or key/NAME."`
}

func (v limitName) parse() (operate.LimitName, error) {
	kind, name, ok := strings.Cut(v.Name, "/")
	if !ok || !storage.LimitKind(kind).Valid() || name == "" {
		return operate.LimitName{}, usageError{fmt.Errorf(
			"%q is no limit: give queue/NAME, type/NAME or key/NAME",
			clean(v.Name))}
	}
	return operate.LimitName{Kind: storage.LimitKind(kind), Name: name}, nil
}

// limitBounds are the flags of the bounds of a limit.
type limitBounds struct {
	Concurrency *int   `placeholder:"N" help:"The most jobs at once; 0 lets none start."`
	Rate        string `placeholder:"N/TIME" help:"The most starts in a period, such as 10/1m."`
	Throttle    string `placeholder:"N/TIME" help:"Starts at equal distances, such as 5/s."`
	Until       string `placeholder:"TIME" help:"When the limit ends; without it, it stays."`
}

// set sets the bounds of a limit.
func (v *limitBounds) set(c *call, name operate.LimitName) (err error) {
	var b ojs.RateLimit
	if v.Concurrency != nil {
		if b.Concurrency = *v.Concurrency; b.Concurrency == 0 {
			b.Concurrency = ojs.NoneAtOnce
		}
		if *v.Concurrency < 0 {
			return usageError{fmt.Errorf("--concurrency is %d: it is 0 or more", *v.Concurrency)}
		}
	}
	if b.Rate, err = parseRate(v.Rate); err != nil {
		return err
	}
	if b.Throttle, err = parseRate(v.Throttle); err != nil {
		return err
	}
	if bounds(b) == "" {
		return usageError{errors.New("no bounds are given: use --concurrency, --rate or --throttle")}
	}
	op, err := c.operator()
	if err != nil {
		return err
	}
	var until time.Time
	if v.Until != "" {
		if until, err = parseTime(v.Until, c.now()); err != nil {
			return err
		}
	}
	if err := op.Limits().Set(c.acting(), name, b, until); err != nil {
		return err
	}
	text := string(name.Kind) + " " + name.Name + " is limited to " + bounds(b)
	if !until.IsZero() {
		text += " until " + moment(until)
	}
	return c.done(string(name.Kind)+"/"+name.Name, text)
}

type limitsSetVerb struct {
	limitName
	limitBounds
}

// Run sets a limit.
func (v *limitsSetVerb) Run(c *call) error {
	name, err := v.parse()
	if err != nil {
		return err
	}
	return v.set(c, name)
}

type limitsClearVerb struct{ limitName }

// Run removes the bounds of a limit.
func (v *limitsClearVerb) Run(c *call) error {
	name, err := v.parse()
	if err != nil {
		return err
	}
	return c.clearLimit(name)
}

func (c *call) clearLimit(name operate.LimitName) error {
	op, err := c.operator()
	if err != nil {
		return err
	}
	if err := op.Limits().Clear(c.acting(), name); err != nil {
		return err
	}
	return c.done(string(name.Kind)+"/"+name.Name,
		string(name.Kind)+" "+name.Name+" has no limit that was set")
}

type limitsBlockVerb struct {
	limitName
	Until string `required:"" placeholder:"TIME" help:"When jobs may start again; now ends a block."`
}

// Run blocks a limit.
func (v *limitsBlockVerb) Run(c *call) error {
	name, err := v.parse()
	if err != nil {
		return err
	}
	op, err := c.operator()
	if err != nil {
		return err
	}
	until, err := parseTime(v.Until, c.now())
	if err != nil {
		return err
	}
	text := " is blocked until " + moment(until)
	if !until.After(c.now()) {
		until, text = time.Time{}, " is not blocked"
	}
	if err := op.Limits().Block(c.acting(), name, until); err != nil {
		return err
	}
	return c.done(v.Name, string(name.Kind)+" "+name.Name+text)
}
