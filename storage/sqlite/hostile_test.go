package sqlite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/internal/hostile"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/sqlite"
)

// bytesLiteral is how a statement writes down bytes.
func bytesLiteral(document string) string { return fmt.Sprintf("X'%X'", document) }

// tables makes of a statement about {job} one about the table.
var tables = strings.NewReplacer("{", "", "}", "")

var hostileConfig = hostile.Config{
	Open: open,
	Exec: func(tb testing.TB, s storage.Storage, sql string) {
		path, _ := files.Load(s)
		if err := sqlite.Exec(path.(string), tables.Replace(sql)); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	},
	Bytes: bytesLiteral,
}

func TestHostileRows(t *testing.T) { hostile.Run(t, hostileConfig) }

// A migration that gives job a column gives it to quarantined_job too.
func TestQuarantinedJobHasTheColumnsOfJob(t *testing.T) {
	s := open(t).(*sqlite.Storage)
	defer s.Close()
	job, err := s.Columns("job")
	if err != nil || len(job) == 0 {
		t.Fatal(job, err)
	}
	quarantined, err := s.Columns("quarantined_job")
	if err != nil || !slices.Equal(job, quarantined) {
		t.Errorf("quarantined_job has %v, and job %v: %v", quarantined, job, err)
	}
}
