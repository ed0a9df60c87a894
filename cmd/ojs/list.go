package main

import (
	"encoding/json"
	"io"
	"iter"
	"slices"
)

// listing is how things of a kind are shown.
type listing[T any] struct {
	columns []column
	row     func(T) []cell
	id      func(T) string
	value   func(T) any // for JSON; nil: the thing itself
	none    string      // the line for an empty table
}

// mostRows is how many rows of a table have the widths of their columns in common. Tests
// change it.
var mostRows = 1000

// show writes things in the form of --output, and in a table the foot below them.
func show[T any](c *call, l listing[T], things iter.Seq2[T, error], foot func() []string) error {
	value := l.value
	if value == nil {
		value = func(t T) any { return t }
	}
	var rows [][]cell
	written := 0
	flush := func() error { // a table of any length keeps few rows
		lines := c.style.lines(l.columns, rows)
		if written > 0 {
			lines = lines[1:] // without the titles
		}
		written += len(rows)
		rows = rows[:0]
		return write(c.out, lines...)
	}
	array := jsonArray{w: c.out}
	for t, err := range things {
		if err == nil {
			switch c.style.form {
			case "id":
				err = write(c.out, clean(l.id(t)))
			case "ndjson":
				err = c.json(value(t), "")
			case "json":
				err = array.add(value(t))
			default:
				if rows = append(rows, l.row(t)); len(rows) == mostRows {
					err = flush()
				}
			}
		}
		if err != nil {
			return err
		}
	}
	switch {
	case c.style.form == "json":
		return array.end()
	case !c.style.isTable():
		return nil
	case written+len(rows) == 0:
		return write(c.out, l.none)
	}
	if len(rows) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	if foot == nil {
		return nil
	}
	return write(c.out, foot()...)
}

// page writes one thing: its lines in a table, else its id or its JSON.
func (c *call) page(id string, value any, lines func() []string) error {
	switch c.style.form {
	case "id":
		return write(c.out, clean(id))
	case "json":
		return c.json(value, "  ")
	case "ndjson":
		return c.json(value, "")
	}
	return write(c.out, lines()...)
}

// json writes a value and a line break.
func (c *call) json(value any, indent string) error {
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(value)
}

// jsonArray writes a JSON array, one value after the other.
type jsonArray struct {
	w io.Writer
	n int
}

func (a *jsonArray) add(value any) error {
	begin := ",\n  "
	if a.n == 0 {
		begin = "[\n  "
	}
	a.n++
	b, err := json.MarshalIndent(value, "  ", "  ")
	if err != nil {
		return err
	}
	_, err = a.w.Write(slices.Concat([]byte(begin), b))
	return err
}

func (a *jsonArray) end() error {
	end := "\n]\n"
	if a.n == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(a.w, end)
	return err
}

// all yields the things of a slice.
func all[T any](things []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, t := range things {
			if !yield(t, nil) {
				return
			}
		}
	}
}
