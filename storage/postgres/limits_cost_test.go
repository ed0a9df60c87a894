package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/postgres"
)

// besideLimited stores a job that a limit counts and a job without a limit.
func besideLimited(t *testing.T, s storage.Storage) (limited, unlimited storage.Record) {
	t.Helper()
	limited, unlimited = record(1), record(2)
	limited.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 3}
	must(t, insert(t.Context(), s, limited))
	must(t, insert(t.Context(), s, unlimited))
	return limited, unlimited
}

// claimer claims jobs.
type claimer func(context.Context, storage.Storage, storage.Claim) ([]storage.Record, error)

// claimers are the two ways to claim.
var claimers = map[string]claimer{
	"Claim": func(ctx context.Context, s storage.Storage, c storage.Claim) ([]storage.Record, error) {
		return s.Claim(ctx, time.Now(), c, nil)
	},
	"SettleAndClaim": func(
		ctx context.Context, s storage.Storage, c storage.Claim,
	) ([]storage.Record, error) {
		into := make([]*storage.Record, c.Max)
		for i := range into {
			into[i] = new(storage.Record)
		}
		_, n, err := s.(storage.SettleClaimer).SettleAndClaim(ctx, time.Now(), nil, nil, c, into)
		list := make([]storage.Record, n)
		for i := range list {
			list[i] = *into[i]
		}
		return list, err
	},
}

// A claim that has looked at an unlimited job which another engine takes does not begin
// anew: it costs one transaction, however many such jobs there are.
func TestLimitedClaimCostBesideOthers(t *testing.T) {
	for way, claim := range claimers {
		t.Run(way, func(t *testing.T) {
			s, spy, name := openSpied(t, "")
			limited, unlimited := besideLimited(t, s)
			tx, err := connect(t).Begin(t.Context())
			must(t, err)
			defer tx.Rollback(context.Background())
			_, err = tx.Exec(t.Context(), "SELECT FROM "+name+".stage WHERE seq IN (SELECT seq FROM "+name+
				".job WHERE id = $1) FOR UPDATE", unlimited.ID)
			must(t, err)
			var got []storage.Record
			counts := spy.count(func() {
				got, err = claim(
					t.Context(),
					s,
					storage.Claim{Max: 10, Worker: "w", Limits: new(storage.Limited)},
				)
			})
			must(t, err)
			if len(got) != 1 || got[0].ID != limited.ID {
				t.Errorf("%d jobs are claimed: %v", len(got), got)
			}
			if n := counts["claimThese"]; n != 1 {
				t.Errorf("the claim tries %d times to take jobs: %v", n, counts)
			}
		})
	}
}

// A job that another engine takes counts for nothing: the claim takes the limited job
// behind it [limit-14].
func TestLimitedClaimBehindTakenJob(t *testing.T) {
	for way, claim := range claimers {
		t.Run(way, func(t *testing.T) {
			s, spy, name := openSpied(t, "")
			pool := connect(t)
			limited, unlimited := besideLimited(t, s)
			_, err := pool.Exec(
				t.Context(),
				"UPDATE "+name+".stage SET place = -1 WHERE seq IN (SELECT seq FROM "+
					name+".job WHERE id = $1)",
				unlimited.ID,
			)
			must(t, err)
			// The claim that begins does not take the first job, which is locked.
			tx, err := pool.Begin(t.Context())
			must(t, err)
			defer tx.Rollback(context.Background())
			_, err = tx.Exec(t.Context(), "DELETE FROM "+name+".stage WHERE seq IN (SELECT seq FROM "+
				name+".job WHERE id = $1)", unlimited.ID)
			must(t, err)
			spy.once("claimThese", func() {
				spy.once("beginPast", func() { must(t, tx.Commit(context.Background())) })
			})
			got, err := claim(t.Context(), s,
				storage.Claim{Max: 10, Worker: "w", Limits: &storage.Limited{Now: 1}})
			must(t, err)
			if len(got) != 1 || got[0].ID != limited.ID {
				t.Errorf("%d jobs are claimed: %v", len(got), got)
			}
		})
	}
}

// A claim reads as many jobs with many full keys, in each of which a job waits, as
// without any.
func TestClaimCostBesideFullKeys(t *testing.T) {
	s, _ := open(t, "")
	ctx, now, n := t.Context(), time.Now(), 0
	jobs := func(count int, key func(i int) *ojs.RateLimit) {
		batch := make([]storage.Insert, count)
		for i := range batch {
			batch[i] = storage.Insert{Record: record(n), IDIsNew: true}
			batch[i].Record.RateLimit = key(i)
			n++
		}
		_, err := s.Insert(ctx, now, batch, nil)
		must(t, err)
	}
	none := func(int) *ojs.RateLimit { return nil }
	each := func(i int) *ojs.RateLimit { return &ojs.RateLimit{Key: fmt.Sprint("k", i), Concurrency: 1} }
	jobs(20, none)
	want, err := s.ClaimReads(ctx, 10)
	must(t, err)
	const keys = 500
	jobs(keys, each)
	c := storage.Claim{Max: 20 + keys, Worker: "w", Limits: new(storage.Limited)}
	got, err := s.Claim(ctx, now, c, nil)
	if err != nil || len(got) != 20+keys {
		t.Fatal(len(got), err)
	}
	jobs(keys, each)
	jobs(20, none)
	got, err = s.Claim(ctx, now, storage.Claim{Max: 1, Worker: "w"}, nil)
	if err != nil || len(got) != 1 || got[0].RateLimit != nil {
		t.Fatal(got, err)
	}
	reads, err := s.ClaimReads(ctx, 10)
	must(t, err)
	if reads > want+2 { // one more says that jobs are set aside
		t.Errorf("a claim reads %d jobs with %d full keys, and %d without", reads, keys, want)
	}
}

// closeKey has the limit of a key let no job start.
func closeKey(t *testing.T, s *postgres.Storage, key string) {
	t.Helper()
	name := storage.LimitName{Kind: storage.LimitKey, Name: key}
	none := ojs.RateLimit{Concurrency: ojs.NoneAtOnce}
	must(t, s.SetLimit(t.Context(), record(0).CreatedAt, name, none, time.Time{}))
}
