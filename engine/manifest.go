package engine

import (
	"runtime"
	"runtime/debug"

	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// Manifest is what an engine says of itself (OJS conformance manifest). It encodes to the
// standard's JSON.
type Manifest struct {
	OJSVersion       string         `json:"ojs_version"`
	Implementation   Implementation `json:"implementation"`
	ConformanceLevel int            `json:"conformance_level"`
	Backend          string         `json:"backend"`
	Capabilities     Capabilities   `json:"capabilities"`
	EventDelivery    string         `json:"event_delivery"`
}

// Implementation names the program.
type Implementation struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Language string `json:"language"`
}

// Capabilities is what depends on the storage.
type Capabilities struct {
	UniqueJobs UniqueCapability `json:"unique_jobs"`
	Durable    bool             `json:"durable"`
}

// UniqueCapability says how far unique jobs can be relied on (OJS unique jobs, section
// 8.3).
type UniqueCapability struct {
	Strength  storage.Strength `json:"strength"`
	Mechanism string           `json:"mechanism,omitempty"`
	Unicode   string           `json:"unicode_version"` // by which strings are normalised
}

// level is the highest that is here in full: the next one needs workflows. Unique jobs,
// of level 4, are there.
const level = 2

const modulePath = "github.com/ojsengine/ojs"

// Manifest returns what this engine on its storage conforms to.
func (e *Engine[T]) Manifest() Manifest {
	s := e.core.store.Capabilities()
	return Manifest{
		OJSVersion:       "1.0",
		Implementation:   Implementation{Name: "ojs", Version: version(), Language: runtime.Version()},
		ConformanceLevel: level,
		Backend:          s.Name,
		Capabilities: Capabilities{
			UniqueJobs: UniqueCapability{Strength: s.Unique, Mechanism: s.Mechanism,
				Unicode: policy.UnicodeVersion},
			Durable: s.Durable,
		},
		EventDelivery: "best-effort",
	}
}

// version is that of this module in the program, "devel" where it was built from a work
// tree.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "devel"
}
