package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/rows"
	"github.com/ojsengine/ojs/internal/versions"
	"github.com/ojsengine/ojs/storage"
)

// Claim implements storage.Storage.
func (s *Storage) Claim(
	ctx context.Context, now time.Time, c storage.Claim, dst []storage.Record,
) ([]storage.Record, error) {
	if err := s.enter(ctx); err != nil {
		return dst, err
	}
	defer s.mu.RUnlock()
	if c.Max <= 0 {
		return dst, nil
	}
	c.ResetLimits()
	c.Limits.Held = s.held.Load()
	most := min(c.Max, maxRows)
	had := len(dst)
	types := typesOf(c.Types)
	for left := most; left > 0; {
		args := types.claimArguments(rows.Nanos(now), left, &c)
		sql := s.sql.claimAll
		if s.paused.Load() {
			sql = s.sql.claimAround
		}
		if len(c.Queues) > 0 {
			sql, args = s.sql.claim, append(args, c.Queues)
		}
		var claimed []stored
		err := again(func() (err error) {
			claimed, err = selectRows(ctx, tuned{s}, true, sql, args...)
			return err
		})
		if err != nil && left == most {
			return dst, wrap(err)
		}
		slices.SortFunc(claimed, func(a, b stored) int { return cmp.Compare(a.ord, b.ord) })
		counted := len(claimed) > 0 && claimed[0].ord < 0
		if counted {
			claimed = claimed[1:]
		}
		first := len(dst)
		dst = s.decodeClaimed(ctx, claimed, dst)
		got := len(dst) - first
		left -= got
		if counted && left > 0 { // the rest has to look at limits
			more, err := s.claimPast(ctx, rows.Nanos(now), &c, left, most-left, false)
			if err != nil && left == most && len(more) == 0 {
				return dst, wrap(err)
			}
			return append(dst, more...), nil
		}
		if got == len(claimed) { // others come in the place of jobs that do not decode
			break
		}
	}
	if len(dst)-had < most { // it has met no job that a limit counts
		c.Limits.Held = false
		s.held.Store(false)
	}
	return dst, nil
}

// decodeClaimed appends the jobs that a statement has claimed to dst. It moves jobs that
// do not decode to the quarantine. If that fails, they stay active until their leases
// expire.
func (s *Storage) decodeClaimed(
	ctx context.Context, claimed []stored, dst []storage.Record,
) []storage.Record {
	var met []bad
	for i := range claimed {
		rec, err := rows.Decode(&claimed[i].Columns)
		if err != nil {
			met = append(met, bad{claimed[i], err})
			continue
		}
		dst = append(dst, rec)
	}
	_ = s.setAsideRead(ctx, true, met)
	return dst
}

// claimTypes are the types of a claim as statements take them: see ofTypes in sql.go.
type claimTypes struct {
	names               []string // nil: all
	ranged, from, until []string
}

// arguments appends the types of jobs that have versions.
func (t *claimTypes) arguments(args []any) []any { return append(args, t.ranged, t.from, t.until) }

// claimArguments are those of each statement that claims up to most jobs.
func (t *claimTypes) claimArguments(now int64, most int, c *storage.Claim) []any {
	args := t.arguments([]any{now, most, c.Worker, t.names})
	return append(args, givenLease(c.Lease))
}

// givenLease is the lease of a claim or a renewal as statements take it (leaseFor).
func givenLease(lease time.Duration) int64 { return int64(cmp.Or(lease, ojs.DefaultLease)) }

// typesOf reads the Types of a claim (storage.Claim.Takes).
func typesOf(patterns []string) (t claimTypes) {
	t.ranged, t.from, t.until = []string{}, []string{}, []string{}
	add := func(name, from, until string) {
		t.ranged, t.from, t.until = append(t.ranged, name), append(t.from, from), append(t.until, until)
	}
	for _, pattern := range patterns {
		name, wanted, ranged := strings.Cut(pattern, "@")
		if !ranged || wanted == "" {
			t.names = append(t.names, name)
		}
		if !ranged {
			add(name, "-1", "Infinity")
			continue
		}
		r, err := versions.ParseRange(wanted)
		if err != nil { // it has no version
			continue
		}
		until := "Infinity"
		if !r.Open {
			until = numeric(r.Until)
		}
		add(name, numeric(r.From), until)
	}
	if len(patterns) > 0 && t.names == nil {
		t.names = []string{}
	}
	return t
}

// numeric is a version as the constant version in sql.go has it.
func numeric(v versions.Version) string { return fmt.Sprintf("%d%019d", v.Major, v.Minor) }
