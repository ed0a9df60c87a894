package main

import (
	"strings"
)

// column is a column of a table.
type column struct {
	title string
	right bool // numbers
	long  bool // a text that may be cut
	rank  int  // 0: always shown; else the column of the highest rank goes first
	wide  bool // only of --output wide
}

// cell is a text of a table. It is clean.
type cell struct {
	text string
	tint tint
}

func of(text string) cell             { return cell{text: clean(text)} }
func tinted(t tint, text string) cell { return cell{clean(text), t} }

// stateCell is a state in its colour.
func stateCell[S ~string](state S) cell { return tinted(tintOf(state), string(state)) }

// comfortable is the width below which a long text is cut only after columns have gone.
const comfortable = 18

// shortest is the least width of a long text.
const shortest = 6

// lines lays out a table within the width.
func (s *style) lines(columns []column, rows [][]cell) []string {
	var shown []int
	for i, col := range columns {
		if !col.wide || s.form == "wide" {
			shown = append(shown, i)
		}
	}
	natural := make([]int, len(columns))
	for i, col := range columns {
		natural[i] = widthOf(col.title)
		for _, row := range rows {
			natural[i] = max(natural[i], widthOf(row[i].text))
		}
	}
	if s.width > 0 && s.form != "wide" {
		shown = s.drop(columns, natural, shown)
		s.shrink(columns, natural, shown)
	}
	line := func(row []cell) string {
		var parts []string
		for _, i := range shown {
			text := cut(row[i].text, natural[i])
			padded := pad(text, natural[i], columns[i].right)
			if row[i].tint != plain {
				padded = strings.Replace(padded, text, s.paint(row[i].tint, text), 1)
			}
			parts = append(parts, padded)
		}
		return strings.Join(parts, "  ")
	}
	titles := make([]cell, len(columns))
	for i, col := range columns {
		titles[i] = cell{col.title, dim}
	}
	out := []string{line(titles)}
	for _, row := range rows {
		out = append(out, line(row))
	}
	return out
}

// drop leaves out columns until the others fit with their long texts at a comfortable
// width.
func (s *style) drop(columns []column, natural, shown []int) []int {
	for {
		width, last := -2, -1
		for at, i := range shown {
			w := natural[i]
			if columns[i].long {
				w = min(w, max(comfortable, widthOf(columns[i].title)))
			}
			width += w + 2
			if columns[i].rank > 0 && (last < 0 || columns[i].rank > columns[shown[last]].rank) {
				last = at
			}
		}
		if width <= s.width || last < 0 {
			return shown
		}
		shown = append(append([]int(nil), shown[:last]...), shown[last+1:]...)
	}
}

// shrink cuts the widest of the long texts until the table fits.
func (s *style) shrink(columns []column, natural, shown []int) {
	width := -2
	for _, i := range shown {
		width += natural[i] + 2
	}
	for ; width > s.width; width-- {
		widest := -1
		for _, i := range shown {
			if columns[i].long && natural[i] > max(shortest, widthOf(columns[i].title)) &&
				(widest < 0 || natural[i] > natural[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		natural[widest]--
	}
}

// field is a line of a page about one thing.
type field struct {
	name string
	cell
}

// fields lays out the fields that have a text, with the texts below one another. A text
// that does not fit continues in the next line.
func (s *style) fields(list []field) []string {
	width := 0
	for _, f := range list {
		if f.text != "" {
			width = max(width, widthOf(f.name))
		}
	}
	var out []string
	for _, f := range list {
		if f.text == "" {
			continue
		}
		name := s.paint(dim, pad(f.name, width, false))
		for _, part := range s.wrap(f.text, width+2) {
			out = append(out, name+"  "+s.paint(f.tint, part))
			name = strings.Repeat(" ", width)
		}
	}
	return out
}

// wrap breaks a text into lines that begin at a column. It breaks no word: a call stays
// whole.
func (s *style) wrap(text string, at int) []string {
	room := s.width - at
	if s.width == 0 || room < 20 || widthOf(text) <= room {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case widthOf(line)+1+widthOf(word) > room:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
