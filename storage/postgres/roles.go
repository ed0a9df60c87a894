package postgres

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The privileges that a role needs, by what its programs do. The owner of the schema, who
// migrates it, needs none beside.

//go:embed grants/*.sql
var grants embed.FS

// Access is what the programs of a role do.
type Access string

const (
	// Worker runs engines: everything but migrations.
	Worker Access = "worker"
	// Enqueuer stores jobs, and looks them up.
	Enqueuer Access = "enqueuer"
	// Reader looks: lists and counts jobs, and reads the view.
	Reader Access = "reader"
)

// Grants returns the statements that give a role the privileges for an access, to be run
// by the owner of the schema. Run them again after a migration, which may make tables. Of
// the options only WithSchema counts.
//
// Open with a role of any access works on a schema that is up to date. A call for which
// the role lacks a privilege fails with ErrPrivilege.
func Grants(a Access, role string, opts ...Option) (string, error) {
	cfg, err := configure(opts)
	if err != nil {
		return "", err
	}
	if role == "" || strings.ContainsRune(role, 0) {
		return "", invalid("role", "is empty or holds a zero byte")
	}
	script, err := grants.ReadFile("grants/" + string(a) + ".sql")
	if err != nil {
		return "", invalid("access", "%s is none of worker, enqueuer, reader", a)
	}
	return strings.NewReplacer(
		"{schema}", `"`+cfg.schema+`"`, "{role}", pgx.Identifier{role}.Sanitize(),
	).Replace(string(script)), nil
}
