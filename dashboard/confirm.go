package dashboard

import (
	"github.com/google/uuid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/foreign"
)

// A form that changes values asks twice: the first post shows what would change, and
// does nothing. Its page has a form with the same values, which does it. If it makes a
// job, the page has the id of the job, so that a second confirmation makes no other.

// confirmation is the page between the two.
type confirmation struct {
	Do      Verb
	Action  Action // what permission is asked for
	Title   string
	Changes []change
	Notes   []string
	Danger  bool
	Makes   bool          // it makes a job
	Fields  []hiddenField // set by confirm
}

// change is a value before and after.
type change struct{ Name, Before, After string }

type hiddenField struct{ Name, Value string }

// sure reports whether the form is the one of the confirmation.
func (p *page) sure() bool { return p.r.PostFormValue("sure") == "1" }

// confirm asks for the second post, which has the values of these fields.
func (p *page) confirm(c confirmation, fields ...string) error {
	if err := p.h.may(p.r, c.Action); err != nil {
		return denied{err}
	}
	for _, name := range append(fields, "do") {
		c.Fields = append(c.Fields, hiddenField{name, p.r.PostFormValue(name)})
	}
	if c.Makes {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		c.Fields = append(c.Fields, hiddenField{"id", id.String()})
	}
	return p.show("confirm", c.Title, &c)
}

// makes gives the job of a confirmed form the id of the confirmation.
func (p *page) makes() []ojs.Option {
	if id := p.r.PostFormValue("id"); id != "" {
		return []ojs.Option{ojs.WithID(id)}
	}
	return nil
}

// made reports whether an enqueue has failed because the form was confirmed before, and
// the id of the job of then.
func (p *page) made(err error) (id string, again bool) {
	var double *ojs.DuplicateError
	if !foreign.As(err, &double) || double.ID != p.r.PostFormValue("id") {
		return "", false
	}
	return double.ID, true
}
