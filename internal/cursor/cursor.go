// Package cursor writes and reads the cursors of listings in several orders, for the
// storages of this module.
package cursor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
)

// Position is a place in an order, such as a time and a number among the jobs of that
// time. An order that needs fewer numbers has them first.
type Position [3]int64

// Cursor is a cut in an order, right after a position. No job has to be there.
type Cursor struct {
	After Position
	Back  bool // what is before the cut is asked for, what comes next to it first
}

// Parse reads a cursor. The error is ojs.ErrInvalid.
func Parse(text string) (c Cursor, err error) {
	numbers, back := strings.CutPrefix(text, "<")
	c.Back = back
	for i, number := range strings.SplitN(numbers, ".", len(c.After)) {
		if c.After[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return Cursor{}, &ojs.InvalidError{Code: ojs.InvalidCodeOption, Field: "cursor",
				Reason: fmt.Sprintf("%q is not the Next or Prev of a page of this storage", text)}
		}
	}
	return c, nil
}

// String is what Parse reads.
func (c Cursor) String() string {
	n := len(c.After)
	for n > 1 && c.After[n-1] == 0 {
		n--
	}
	s := strconv.FormatInt(c.After[0], 10)
	for _, number := range c.After[1:n] {
		s += "." + strconv.FormatInt(number, 10)
	}
	if c.Back {
		s = "<" + s
	}
	return s
}

// Walk is a page under way: where a storage is in an order.
type Walk struct {
	From  Cursor
	First bool // there is no cursor: the page begins where the order does

	last Position // that was passed
	more bool
}

// Begin begins the page that a cursor asks for. The error is ojs.ErrInvalid.
func Begin(text string) (w Walk, err error) {
	if w.First = text == ""; !w.First {
		w.From, err = Parse(text)
	}
	w.last = w.From.After
	return w, err
}

// Pass notes that the page goes past the position, whether its job is on the page or not.
func (w *Walk) Pass(at Position) { w.last = at }

// Stop notes that the page ends though there is a job at the position, the next in the
// direction of the walk.
func (w *Walk) Stop(at Position) {
	w.more = true
	if w.From.Back {
		w.last = at
	}
}

// Ends returns the cursors of the page before and after; "": there is none.
func (w *Walk) Ends() (prev, next string) {
	begin, end := Cursor{After: w.From.After}, Cursor{After: w.last}
	if w.From.Back {
		next = begin.String()
		if w.more {
			end.Back = true
			prev = end.String()
		}
		return prev, next
	}
	if !w.First {
		begin.Back = true
		prev = begin.String()
	}
	if w.more {
		next = end.String()
	}
	return prev, next
}
