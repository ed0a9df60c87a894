// Package terms reads and writes lines of terms key:value with spaces between them. A key
// or a value with a space or a quote in it is a Go string literal, in double quotes.
package terms

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is a line that is read.
type Line struct {
	Text string
	At   int // the byte that is read next
}

// Rest returns what is not read yet.
func (l *Line) Rest() string { return l.Text[l.At:] }

// Column returns the column of a byte, in characters from 1 on.
func (l *Line) Column(at int) int { return utf8.RuneCountInString(l.Text[:at]) + 1 }

// Skip reads spaces. It reports whether more follows.
func (l *Line) Skip() bool {
	l.At += len(l.Rest()) - len(strings.TrimLeftFunc(l.Rest(), unicode.IsSpace))
	return l.Rest() != ""
}

// Token reads a string literal, or what comes before a space or the rune end; 0: none. It
// returns what is wrong at the byte that is read next, "" if nothing is.
func (l *Line) Token(end rune) (text, wrong string) {
	if strings.HasPrefix(l.Rest(), `"`) {
		quoted, err := strconv.QuotedPrefix(l.Rest())
		if err != nil {
			return "", `a quote that does not end: write "..." with \" and \\ inside`
		}
		if text, err = strconv.Unquote(quoted); err != nil {
			return "", "no string literal: " + err.Error()
		}
		l.At += len(quoted)
		if r, _ := utf8.DecodeRuneInString(l.Rest()); l.Rest() != "" && !unicode.IsSpace(r) && r != end {
			return "", "a space is missing after the quote"
		}
		return text, ""
	}
	rest := l.Rest()
	n := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || r == end && end != 0 })
	if n < 0 {
		n = len(rest)
	}
	l.At += n
	return rest[:n], ""
}

// Term returns a term.
func Term(key, value string) string {
	quoted := Quote(key)
	if strings.Contains(key, ":") {
		quoted = strconv.Quote(key)
	}
	return quoted + ":" + Quote(value)
}

// Quote writes a key or a value so that Token reads it.
func Quote(s string) string {
	odd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == utf8.RuneError }
	if s == "" || s[0] == '"' || strings.Contains(s, `"`) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}
