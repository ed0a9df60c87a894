// Package stored names the values of a storage by which engines and operators tell one
// another what they are and want. Only the packages of this module use them.
package stored

import (
	"encoding/json"
	"time"
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
)

// Order is what a node is told.
type Order struct{ Do, By string }

// Log is a log of an attempt. Its lines may be encoded.
type Log struct {
	Attempt int             `json:"attempt"`
	Start   time.Time       `json:"start"`
	End     time.Time       `json:"end"`
	Worker  string          `json:"worker"`
	Cut     int             `json:"cut,omitzero"`
	Lines   json.RawMessage `json:"lines"`
}
