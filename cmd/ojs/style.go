package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/workflow"
)

// style is how output looks: its form, its width in columns (0: any) and its colours.
type style struct {
	form  string // of --output
	width int
	color bool
}

// styleOf is the style of a call. COLUMNS sets the width; else it is that of the
// terminal. A pipe and a file get whole texts.
func (c *call) styleOf(v *verbs) style {
	s := style{form: v.Output}
	width, isTerminal := terminal(c.out)
	s.width = width
	if n, err := strconv.Atoi(c.env("COLUMNS")); err == nil && n > 0 {
		s.width = n
	}
	s.color = colored(v.Color, isTerminal, c.env)
	return s
}

// colored reports whether output has colours, by --color and the variables.
func colored(when string, isTerminal bool, env func(string) string) bool {
	return when == "always" || when == "auto" && isTerminal && env("NO_COLOR") == "" && env("TERM") != "dumb"
}

// terminal returns the width of a stream that is a terminal.
func terminal(w any) (width int, ok bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil
}

// isTable reports whether the output is for people.
func (s *style) isTable() bool { return s.form == "table" || s.form == "wide" }

// tint is a colour of the terminal.
type tint string

const (
	plain  tint = ""
	bold   tint = "1"
	dim    tint = "2"
	red    tint = "31"
	green  tint = "32"
	yellow tint = "33"
	blue   tint = "34"
	cyan   tint = "36"
)

// paint gives a text a colour.
func (s *style) paint(t tint, text string) string {
	if !s.color || t == plain || text == "" {
		return text
	}
	return "\x1b[" + string(t) + "m" + text + "\x1b[0m"
}

// tintOf is the colour of a state, of a job or a workflow.
func tintOf[S ~string](state S) tint {
	switch string(state) {
	case string(ojs.StateActive), string(workflow.StateRunning):
		return cyan
	case string(ojs.StateCompleted):
		return green
	case string(ojs.StateDiscarded), string(workflow.StateFailed):
		return red
	case string(ojs.StateRetryable), string(workflow.StateCompensating), string(ojs.QueuePaused),
		string(ojs.QueueDraining):
		return yellow
	case string(ojs.StateScheduled), string(ojs.StatePending):
		return blue
	case string(ojs.StateCancelled), string(workflow.StateCompensated):
		return dim
	}
	return plain
}

// clean is a text of a job that cannot move the cursor: one line without control
// characters and without marks that change the direction of writing.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
}

// cut shortens a text to a width in columns.
func cut(text string, width int) string { return ansi.Truncate(text, width, "…") }

// widthOf is the width of a text in columns.
func widthOf(text string) int { return ansi.StringWidth(text) }

// pad fills a text with spaces.
func pad(text string, width int, right bool) string {
	fill := strings.Repeat(" ", max(0, width-widthOf(text)))
	if right {
		return fill + text
	}
	return text + fill
}

// write writes lines, each without spaces at its end.
func write(w io.Writer, lines ...string) error {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
