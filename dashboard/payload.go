package dashboard

import (
	"bytes"
	"encoding/json"
	"maps"
	"unicode/utf8"

	"github.com/ojsengine/ojs/internal/encoded"
)

const (
	maxInline  = 16 << 10 // bytes of a payload on the page of its job
	maxSnippet = 120      // bytes of args in a list
)

// payload is JSON as a page shows it.
type payload struct {
	Part Part
	Text string // indented, and cut if Cut
	Size int    // bytes of the JSON as it is stored
	Cut  bool
}

// readable is a payload, or what stands for one that a codec has encoded.
func readable(raw []byte) []byte {
	if encoded.Value(raw) || encoded.Args(raw) {
		return []byte(encoded.Redacted)
	}
	return raw
}

// Details are the details of an error as the page shows them.
func (p *page) Details(details map[string]any) map[string]any {
	if details[encoded.Member] == true {
		details = maps.Clone(details)
		details["data"] = encoded.Redacted
	}
	return details
}

// indented re-indents JSON without decoding it, so that each number stays exact.
func indented(part Part, raw []byte) payload {
	p := payload{Part: part, Size: len(raw)}
	raw = readable(raw)
	if len(raw) > 4*maxInline { // indenting the whole of it would cost more than the page
		raw, p.Cut = raw[:4*maxInline], true
	}
	var b bytes.Buffer
	if p.Cut || json.Indent(&b, raw, "", "  ") != nil {
		b.Reset()
		b.Write(raw)
	}
	text := b.Bytes()
	if len(text) > maxInline {
		text, p.Cut = cutAt(text, maxInline), true
	}
	p.Text = string(text)
	return p
}

// snippet is the beginning of a payload in one line.
func snippet(raw []byte) string {
	raw = readable(raw)
	if len(raw) <= maxSnippet {
		return string(raw)
	}
	return string(cutAt(raw, maxSnippet)) + "…"
}

// cutAt cuts text after at most n bytes, before a rune that does not fit.
func cutAt(text []byte, n int) []byte {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
