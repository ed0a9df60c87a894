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

var (
	secretName = regexp.MustCompile(
		`(?i)passw(?:or)?d|passphrase|secret|token|authorization|cookie|api[_-]?key`)

	// secretText is a name of a secret and its value, in the JSON of a text.
	secretText = regexp.MustCompile(`(?i)((?:` + secretName.String()[len(`(?i)`):] +
		`)(?:\\"|')?\s*[=:]\s*(?:\\"|')?)(?:(?:bearer|basic)\s+)?[^\s,;&"'\\]+`)

	// cardText is a number of 13 to 19 digits that begins as those of cards do.
	cardText = regexp.MustCompile(`\b[3-6](?:[ -]?[0-9]){12,18}\b`)
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
			if text := maskText(in[begin:end]); !bytes.Equal(text, in[begin:end]) {
				out.Write(in[done:begin])
				out.Write(text)
				done = end
			}
		case json.Number:
			if text := cardText.ReplaceAllFunc(in[begin:end], maskCard); !bytes.Equal(text, in[begin:end]) {
				out.Write(in[done:begin])
				out.WriteString(`"` + string(text) + `"`)
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

// suspicious reports whether mask may change some JSON.
func suspicious(in []byte) bool { return secretName.Match(in) || cardText.Match(in) }

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

// maskText masks the JSON of a text.
func maskText(text []byte) []byte {
	text = secretText.ReplaceAll(text, []byte("${1}"+masked))
	return cardText.ReplaceAllFunc(text, maskCard)
}

// maskCard masks a number if its last digit fits the others, as that of a card does.
func maskCard(text []byte) []byte {
	digits := strings.NewReplacer(" ", "", "-", "").Replace(string(text))
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
	if sum%10 != 0 {
		return text
	}
	return []byte(masked + " " + digits[len(digits)-4:])
}
