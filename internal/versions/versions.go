// Package versions has the versions of job types and ranges of them (OJS job versioning).
package versions

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Version is "major.minor" as numbers.
type Version struct{ Major, Minor uint64 }

// Compare orders versions by their numbers: 1.10 comes after 1.9.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor))
}

// String is "major.minor".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

var errVersion = errors.New("use major.minor without leading zeros, such as 2.1")

// Parse reads "major.minor", or "major", which is "major.0".
func Parse(s string) (v Version, err error) {
	major, minor, dotted := strings.Cut(s, ".")
	var ok bool
	if v.Major, ok = number(major); !ok {
		return Version{}, errVersion
	}
	if !dotted {
		return v, nil
	}
	if v.Minor, ok = number(minor); !ok {
		return Version{}, errVersion
	}
	return v, nil
}

// number reads digits without leading zeros.
func number(s string) (uint64, bool) {
	if s == "" || len(s) > 1 && s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 62)
	return n, err == nil
}

// Range is the versions from a first to before an end. The zero Range has none.
type Range struct {
	From  Version
	Until Version
	Open  bool // there is no Until
}

// Has reports whether a version is in the range.
func (r Range) Has(v Version) bool {
	return r.From.Compare(v) <= 0 && (r.Open || v.Compare(r.Until) < 0)
}

// Empty reports whether no version is in the range.
func (r Range) Empty() bool { return !r.Open && r.From.Compare(r.Until) >= 0 }

// Overlaps reports whether a version is in both ranges.
func (r Range) Overlaps(s Range) bool {
	both := r
	if s.From.Compare(both.From) > 0 {
		both.From = s.From
	}
	switch {
	case s.Open:
	case both.Open || s.Until.Compare(both.Until) < 0:
		both.Until, both.Open = s.Until, false
	}
	return !both.Empty()
}

var errRange = errors.New("use *, a version such as 2.0, or bounds by >= and < joined by a space or a comma, such as >=2.0 <3.0")

// ParseRange reads "*", a version, or bounds by ">=" and "<" that all hold.
func ParseRange(s string) (Range, error) {
	r := Range{Open: true}
	fields := strings.FieldsFunc(s, func(c rune) bool { return c == ' ' || c == ',' })
	if len(fields) == 1 && fields[0] == "*" {
		return r, nil
	}
	if len(fields) == 1 && fields[0][0] != '<' && fields[0][0] != '>' {
		v, err := Parse(fields[0])
		if err != nil {
			return Range{}, errRange
		}
		return Range{From: v, Until: Version{v.Major, v.Minor + 1}}, nil
	}
	if len(fields) == 0 {
		return Range{}, errRange
	}
	for _, f := range fields {
		from, least := strings.CutPrefix(f, ">=")
		until, below := strings.CutPrefix(f, "<")
		v, err := Parse(from)
		if below {
			v, err = Parse(until)
		}
		switch {
		case err != nil || !least && !below:
			return Range{}, errRange
		case least && v.Compare(r.From) > 0:
			r.From = v
		case below && (r.Open || v.Compare(r.Until) < 0):
			r.Until, r.Open = v, false
		}
	}
	if r.Empty() {
		return Range{}, fmt.Errorf("%q has no version", s)
	}
	return r, nil
}

// Patterns of claims. A claim names the types that it takes:
//
//	email.send            jobs of the type, of any version and of none
//	email.send@           jobs of the type without a version
//	email.send@>=2.0 <3.0 jobs of the type whose version is in the range

// Full is the name of a type with the version of a job.
func Full(jobType, version string) string {
	if version == "" {
		return jobType
	}
	return jobType + "@" + version
}

// Name is the type of a pattern, or of what Full returns.
func Name(pattern string) string {
	name, _, _ := strings.Cut(pattern, "@")
	return name
}

// Takes reports whether a pattern takes a job of the type, whose version is "" if it has
// none.
func Takes(pattern, jobType, version string) bool {
	name, wanted, ranged := strings.Cut(pattern, "@")
	switch {
	case name != jobType:
		return false
	case !ranged:
		return true
	case wanted == "" || version == "":
		return wanted == version
	}
	return Matches(wanted, version)
}

// Matches reports whether a version is in a range. A range that is none has no version.
func Matches(wanted, version string) bool {
	v, err := Parse(version)
	if err != nil {
		return false
	}
	if r, ok := parsed.Load(wanted); ok {
		return r.(Range).Has(v)
	}
	r, err := ParseRange(wanted)
	if err != nil {
		r = Range{}
	}
	if len(wanted) <= mostRemembered {
		parsed.Store(wanted, r)
	}
	return r.Has(v)
}

// parsed has the ranges of this program's claims, which are few.
var parsed sync.Map

const mostRemembered = 64
