// Package stored has what several packages read and write in a storage: the keys of
// values by which engines and operators tell one another what they are and want, and the
// form of an attempt's log. Package telemetry has the keys of the history.
package stored

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs/internal/document"
)

// The beginnings of keys. An engine that reports on itself (engine.WithReports) is a
// node:
//
//   - node/ID: what an engine is;
//   - alive/ID: when it has reported last;
//   - order/ID/KEY: what another process has told a node to do, until the node does it;
//   - answer/KEY: what a node has answered;
//   - pause/all and pause/type/TYPE: pauses.
const (
	PrefixNode      = "node/"
	PrefixAlive     = "alive/"
	PrefixOrder     = "order/"
	PrefixAnswer    = "answer/"
	PrefixPause     = "pause/"
	KeyPauseAll     = PrefixPause + "all"
	PrefixPauseType = PrefixPause + "type/"
)

// The orders that nodes are given.
const (
	OrderQuiet     = "quiet"
	OrderResume    = "resume"
	OrderTerminate = "terminate"
	OrderStacks    = "stacks"
	OrderLog       = "log" // of a running attempt, under the key KeyLog
)

// Order is what a node is told.
type Order struct {
	Do, By string
	Job    string // of OrderLog
}

// LogFor is how long the log of a running attempt is stored.
const LogFor = time.Minute

// KeyLog is the key of the order for the log of a job's running attempt, and of its
// answer, behind their prefixes.
func KeyLog(job string) string { return "log/" + job }

// Alive is the value of a process. Its members are stored: one may be added, none may
// change its meaning.
type Alive struct {
	ID        string        `json:"id"`   // of its worker
	Beat      uint64        `json:"beat"` // rises with each report
	Seen      time.Time     `json:"seen"` // when it has reported, by its own clock
	Every     time.Duration `json:"every"`
	DeadAfter time.Duration `json:"dead_after"`
	Lease     time.Duration `json:"lease"` // WithClaimLease
}

// Silence is how long the process has not reported, 0 if it reports in time.
func (a *Alive) Silence(now time.Time) time.Duration {
	if d := now.Sub(a.Seen); d > 2*a.Every {
		return d
	}
	return 0
}

// Seconds is a silence as people read it.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// Log is a log of an attempt. Its lines may be encoded.
type Log struct {
	Attempt int             `json:"attempt"`
	Start   time.Time       `json:"start"`
	End     time.Time       `json:"end"`
	Worker  string          `json:"worker"`
	N       uint64          `json:"n,omitzero"` // lines, those that were cut included
	Cut     int             `json:"cut,omitzero"`
	Lines   json.RawMessage `json:"lines"`
}

// Into returns a telemetry.Put that adds values to a list.
func Into(list *[]document.Value) func(key string, data []byte, expires time.Time) {
	return func(key string, data []byte, expires time.Time) {
		*list = append(*list, document.Value{Key: key, Data: data, Expires: expires})
	}
}
