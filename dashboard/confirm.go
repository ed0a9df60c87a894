package dashboard

// A form that changes values asks twice: the first post shows what would change, and
// does nothing. Its page has a form with the same values, which does it.

// confirmation is the page between the two.
type confirmation struct {
	Do      Verb
	Action  Action // what permission is asked for
	Title   string
	Changes []change
	Notes   []string
	Danger  bool
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
	return p.show("confirm", c.Title, &c)
}
