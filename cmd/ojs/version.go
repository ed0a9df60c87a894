package main

import (
	"runtime"
	"runtime/debug"

	"github.com/ojsengine/ojs/storage/postgres"
)

type versionVerb struct{}

// Run prints the version of the command, and of the schema that it knows.
func (versionVerb) Run(c *call) error {
	about := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		Schema  int    `json:"postgres_schema"`
	}{"unknown", runtime.Version(), 0}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		about.Version = info.Main.Version
	}
	steps, err := postgres.Schema()
	if err != nil {
		return err
	}
	about.Schema = len(steps)
	return c.page(about.Version, about, func() []string {
		if c.style.form != "wide" {
			return []string{"ojs " + about.Version}
		}
		return []string{"ojs " + about.Version + " " + about.Go + ", schema " + number(about.Schema) +
			" of PostgreSQL"}
	})
}
