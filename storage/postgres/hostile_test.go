package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/ojsengine/ojs/internal/hostile"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// bytesLiteral is how a statement writes down bytes.
func bytesLiteral(document string) string { return fmt.Sprintf(`'\x%x'::bytea`, document) }

// table is a name in a statement that stands for a table.
var table = regexp.MustCompile(`\{(\w+)\}`)

func hostileConfig(t *testing.T) hostile.Config {
	pool := connect(t)
	names := make(map[storage.Storage]string)
	return hostile.Config{
		Open: func(tb testing.TB) storage.Storage {
			name := schema(tb, pool)
			s, err := postgres.Open(context.Background(), pool, postgres.WithSchema(name))
			if err != nil {
				tb.Fatal(err)
			}
			names[s] = name
			return s
		},
		Exec: func(tb testing.TB, s storage.Storage, sql string) {
			tb.Helper()
			if _, err := pool.Exec(context.Background(), table.ReplaceAllString(sql, names[s]+".$1")); err != nil {
				tb.Fatalf("%s: %v", sql, err)
			}
		},
		Bytes: bytesLiteral,
		Small: true,
	}
}

func TestHostileRows(t *testing.T) { hostile.Run(t, hostileConfig(t)) }
