package dashboard

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/ojsengine/ojs"
)

// Unless WithRedact or WithoutMasks is given, pages mask what looks like a secret: texts,
// lists and objects under a name such as password, what follows such a name in a text,
// and numbers of cards.

const masked = "•••"

const (
	secretNames = `passw(?:or)?d|passphrase|secret|token|authorization|cookie|api[_-]?key`
	isValue     = `[\w-]*(?:\\*["'])?\s*[=:]\s*` // between a name and its value
)

var (
	secretName = regexp.MustCompile(`(?i)` + secretNames)

	// headerText is a header with a secret, up to the end of its line.
	headerText = regexp.MustCompile(`(?i)((?:authorization|cookie)` + isValue + `)[^\s"'\\].*`)

	// secretText is a name of a secret and its value, up to its quote if it has one.
	secretText = regexp.MustCompile(`(?i)((?:` + secretNames + `)` + isValue + `)(?:` +
		`(")(?:[^"\\]|\\.)+|(')[^']+|(\\+["'])[^"'\\]+|(?:(?:bearer|basic)\s+)?[^\s,;&"'\\][^\s,;&"']*)`)

	// digitsText is digits that may have the number of a card among them.
	digitsText = regexp.MustCompile(`\b[0-9](?:[ -]?[0-9]){12,}\b`)
)

// mask is the Redactor of pages that have no other one.
func mask(_ *ojs.JobInfo, _ Part, in []byte) []byte {
	if !suspicious(in) {
		return in
	}
	var out bytes.Buffer
	dec := json.NewDecoder(bytes.NewReader(in))
	dec.UseNumber()
	done := 0                    // bytes of in that out has
	var objects []bool           // whether each open value is an object
	isKey, named := false, false // the next token is a key; the next value is under a secret's name
	for {
		if named && !isKey {
			begin := skip(in, int(dec.InputOffset()))
			if begin < len(in) && strings.IndexByte(`"[{`, in[begin]) >= 0 {
				var value json.RawMessage
				if dec.Decode(&value) != nil {
					return in
				}
				if string(value) != `""` {
					out.Write(in[done:begin])
					out.WriteString(`"` + masked + `"`)
					done = int(dec.InputOffset())
				}
				named, isKey = false, len(objects) > 0 && objects[len(objects)-1]
				continue
			}
		}
		begin := skip(in, int(dec.InputOffset()))
		token, err := dec.Token()
		if err != nil {
			break
		}
		end := int(dec.InputOffset())
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				objects = append(objects, token == '{')
			} else {
				objects = objects[:len(objects)-1]
			}
		case string:
			if isKey {
				named, isKey = secretName.MatchString(token), false
				continue
			}
			if text := maskText(token); text != token {
				out.Write(in[done:begin])
				out.Write(quote(text))
				done = end
			}
		case json.Number:
			if text := maskCards(token.String()); text != token.String() {
				out.Write(in[done:begin])
				out.WriteString(`"` + text + `"`)
				done = end
			}
		}
		named, isKey = false, len(objects) > 0 && objects[len(objects)-1]
	}
	if done == 0 {
		return in
	}
	out.Write(in[done:])
	return out.Bytes()
}

// suspicious reports whether mask may change some JSON. Escapes may hide a name.
func suspicious(in []byte) bool {
	return secretName.Match(in) || digitsText.Match(in) || bytes.Contains(in, []byte(`\u`))
}

// isPlain reports whether mask changes no part of a job.
func isPlain(job *ojs.JobInfo) bool {
	object := func(in map[string]any) bool {
		if len(in) == 0 {
			return true
		}
		b, err := json.Marshal(in)
		return err == nil && !suspicious(b)
	}
	failures := job.Errors
	if job.Error != nil {
		failures = append(failures[:len(failures):len(failures)], *job.Error)
	}
	for i := range failures {
		if suspicious([]byte(failures[i].Message)) || !object(failures[i].Details) {
			return false
		}
	}
	return len(job.Extra) == 0 && !suspicious(job.Args.JSON()) && !suspicious(job.Result) && object(job.Meta)
}

// skip is where the token after a place begins.
func skip(in []byte, at int) int {
	for at < len(in) && strings.IndexByte(" \t\r\n,:", in[at]) >= 0 {
		at++
	}
	return at
}

// maskText masks a text, which may be JSON itself.
func maskText(text string) string {
	if in := strings.TrimSpace(text); in != "" && (in[0] == '{' || in[0] == '[') && json.Valid([]byte(in)) {
		return string(mask(nil, "", []byte(text)))
	}
	text = headerText.ReplaceAllString(text, "${1}"+masked)
	text = secretText.ReplaceAllString(text, "${1}${2}${3}${4}"+masked)
	return maskCards(text)
}

// quote is a text as JSON.
func quote(text string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a text has JSON
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func maskCards(text string) string { return digitsText.ReplaceAllStringFunc(text, maskDigits) }

// maskDigits masks the numbers of cards among groups of digits: 13 to 19 digits of whole
// groups that begin as a card's number does, and whose last digit fits the others.
func maskDigits(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		card, digits := 0, 0 // bytes of text that are the number of a card; digits so far
		for i := 0; i < len(text) && digits < 19; i++ {
			if text[i] < '0' {
				continue
			}
			digits++
			ends := i+1 == len(text) || text[i+1] < '0'
			begins := '3' <= text[0] && text[0] <= '6'
			if begins && ends && digits >= 13 && fits(plainDigits.Replace(text[:i+1])) {
				card = i + 1
			}
		}
		if card > 0 {
			number := plainDigits.Replace(text[:card])
			out.WriteString(masked + " " + number[len(number)-4:])
			text = text[card:]
			continue
		}
		next := strings.IndexAny(text, " -") + 1
		if next == 0 {
			next = len(text)
		}
		out.WriteString(text[:next])
		text = text[next:]
	}
	return out.String()
}

var plainDigits = strings.NewReplacer(" ", "", "-", "")

// fits reports whether the last digit fits the others, as that of a card's number does.
func fits(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
