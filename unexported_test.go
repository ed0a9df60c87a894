package ojs_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
)

type hidden struct{ secret string }

type base struct {
	Shown string
	kept  int
}

type chain struct {
	Next *chain
	note string
}

type encodesItself struct{ n int }

func (e encodesItself) MarshalText() ([]byte, error) { return fmt.Append(nil, e.n), nil }

type onPurpose struct {
	cache string `json:"-"`
	_     [0]func()
	Name  string
}

// TestUnexported changes the default logger, so it is not parallel.
func TestUnexported(t *testing.T) {
	_, _, _, _ = hidden{}.secret, base{}.kept, chain{}.note, onPurpose{}.cache
	old := slog.Default()
	defer slog.SetDefault(old)
	log := func(define func()) string {
		var out bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
		define()
		return out.String()
	}
	for _, tt := range []struct {
		name   string
		define func()
		fields string // "": no warning
	}{
		{"a field", func() { ojs.Define[hidden]("a") }, "[secret]"},
		{"a second type of the same args", func() { ojs.Define[hidden]("b") }, ""},
		{"an embedded struct's", func() { ojs.Define[struct{ base }]("a") }, "[kept]"},
		{"of an inner struct", func() { ojs.Define[struct{ In []map[string]*hidden }]("a") }, "[In.secret]"},
		{"of a type that holds itself", func() { ojs.Define[chain]("a") }, "[note]"},
		{"of a lock", func() { ojs.Define[struct{ Mu sync.Mutex }]("a") }, "Mu."},
		{"no struct", func() { ojs.Define[map[string]int]("a") }, ""},
		{"exported ones", func() { ojs.Define[struct{ A, B int }]("a") }, ""},
		{"types that encode themselves", func() {
			ojs.Define[struct {
				At time.Time
				N  encodesItself
			}]("a")
		}, ""},
		{"left out on purpose", func() { ojs.Define[onPurpose]("a") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := log(tt.define)
			if tt.fields == "" && got != "" || !strings.Contains(got, tt.fields) {
				t.Errorf("log %q, want fields %s", got, tt.fields)
			}
		})
	}
}
