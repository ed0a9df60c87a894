package server

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
)

// readBody reads and splits the body of a request (F004, F006, F014, F028).
func (s *Server) readBody(c *call) error {
	most := s.conf.maxBody
	if c.rt.large {
		most = s.conf.maxBatchBody
	}
	encoding, packed := strings.ToLower(c.r.Header.Get("Content-Encoding")), most
	if encoding == "gzip" {
		packed += most/64 + 1<<10 // gzip makes some bodies longer
	}
	if c.r.ContentLength > packed {
		return tooLarge(codeTooLarge, "body", c.r.ContentLength, most)
	}
	var source io.Reader = c.r.Body
	switch encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(http.MaxBytesReader(nil, c.r.Body, packed))
		if errors.Is(err, io.EOF) {
			source = strings.NewReader("")
			break
		}
		if err != nil {
			return badPayload("the body is not gzip, as Content-Encoding says")
		}
		defer unpacked.Close()
		source = unpacked
	default:
		return refuse(http.StatusUnsupportedMediaType, codeInvalid,
			"Content-Encoding %q is not understood: use gzip or none", clip(encoding)).with("field",
			"Content-Encoding")
	}
	body, err := readAll(source, c.r.ContentLength, most)
	var endless *http.MaxBytesError
	switch {
	case errors.Is(err, errTooLarge), errors.As(err, &endless):
		return tooLarge(codeTooLarge, "body", most+1, most)
	case err != nil:
		return badPayload("the body could not be read")
	}
	c.reading(true)
	c.sent = body
	if len(trim(body)) == 0 && c.rt.body == optionalBody {
		return nil
	}
	if len(body) > 0 {
		if err := checkType(c.r.Header.Get("Content-Type")); err != nil {
			return err
		}
	}
	c.body, err = parseBody(body, s.conf.maxDepth+wrapping)
	return err
}

// wrapping is how deep a batch of jobs, or a workflow, wraps the args of a job.
const wrapping = 16

var errTooLarge = errors.New("ojs: server: too large")

// readAll reads up to most bytes. length is what the request says; below 0: nothing.
func readAll(source io.Reader, length, most int64) ([]byte, error) {
	const first = 4 << 10
	if length < 0 || length > 1<<20 {
		length = first
	}
	b := make([]byte, 0, length+1)
	for {
		n, err := source.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > most:
			return nil, errTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// checkType refuses a body of another type (F004).
func checkType(header string) error {
	if header == "application/json" || header == contentType[0] {
		return nil
	}
	kind, _, _ := strings.Cut(header, ";") // any parameters
	kind = strings.ToLower(strings.TrimSpace(kind))
	if kind != "application/json" && kind != contentType[0] {
		return invalid("Content-Type", "is not taken").
			expected(contentType[0] + " or application/json").received(clip(header))
	}
	return nil
}
