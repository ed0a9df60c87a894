package memory

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/rule"
)

func sample() *storage.Record {
	r := new(storage.Record)
	r.ID, r.Type, r.Queue, r.State, r.MaxAttempts = "id", "type", "queue", ojs.StateAvailable, 3
	r.Timeout, r.TotalTimeout, r.Lease = time.Minute, time.Hour, time.Second
	r.Unique = &ojs.UniquePolicy{}
	return r
}

// Jobs that differ in any field of a policy are not of one kind.
func TestKindsTellPoliciesApart(t *testing.T) {
	change := func(name string, policy func(*storage.Record) reflect.Value) {
		for i := range policy(sample()).NumField() {
			field := policy(sample()).Type().Field(i)
			if name == "unique" && field.Name == "Key" { // such a policy is not the kind's
				continue
			}
			r := sample()
			set := func(v reflect.Value) {
				s := New()
				k := s.kindOf(sample())
				policy(r).Field(i).Set(v)
				if k.fits(r) {
					t.Errorf("%s.%s: %v makes no difference", name, field.Name, v)
				}
				if other := s.kindOf(r); other == k || !other.fits(r) {
					t.Errorf("%s.%s: a job does not fit its own kind", name, field.Name)
				}
			}
			switch v := reflect.New(field.Type).Elem(); {
			case v.CanInt():
				v.SetInt(1)
				set(v)
			case v.CanUint():
				v.SetUint(1)
				set(v)
			case v.CanFloat():
				v.SetFloat(1)
				set(v)
			case v.Kind() == reflect.String:
				v.SetString("x")
				set(v)
			case v.Kind() == reflect.Slice:
				set(reflect.MakeSlice(field.Type, 0, 0))
				set(reflect.MakeSlice(field.Type, 1, 1))
			default:
				t.Fatalf("%s.%s is a %v", name, field.Name, field.Type)
			}
		}
	}
	change("retry", func(r *storage.Record) reflect.Value { return reflect.ValueOf(&r.Retry).Elem() })
	change("unique", func(r *storage.Record) reflect.Value { return reflect.ValueOf(r.Unique).Elem() })
}

// A claim and an update in place give the same record as Record.Claim and a stored
// record, for any job and any times.
func TestJobInPlace(t *testing.T) {
	instants := []time.Time{
		{}, time.Unix(0, 0).UTC(), time.Unix(0, math.MinInt64).UTC(), time.Unix(0, math.MaxInt64).UTC(),
		time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC),
		time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		r := sample()
		r.Lease = rapid.SampledFrom([]time.Duration{time.Second, math.MaxInt64}).Draw(t, "lease")
		r.Attempt = rapid.SampledFrom([]int{0, 1, math.MaxInt32}).Draw(t, "attempt")
		r.Progress = rapid.SampledFrom([]float64{0, 1}).Draw(t, "progress")
		if rapid.Bool().Draw(t, "meta") {
			r.Meta = map[string]any{"k": "v"}
		}
		j := s.prepare(r)
		s.adopt(j, r)
		at := func(name string) time.Time { return rapid.SampledFrom(instants).Draw(t, name) }
		want, worker, now := j.record(), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t,
			"worker"), at("now")
		want.Claim(now, worker, 0)
		var got storage.Record
		s.enlist(j)
		s.change(j, &got, func(r *storage.Record) { r.Claim(now.Round(0).UTC(), worker, 0) })
		if there := j.record(); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(there, want) {
			t.Fatalf("claimed %+v, stored %+v\nwant %+v", got, there, want)
		}
		want.State = rapid.SampledFrom(ojs.AllStates()).Draw(t, "state")
		want.LeaseUntil, want.FinishedAt, want.NextRetryAt, want.EnqueuedAt = at("lease until"),
			at("finished"), at("retry"), at("enqueued")
		want.Progress = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "later progress")
		if rapid.Bool().Draw(t, "failed") {
			want.Errors = []ojs.Failure{{Message: "m"}}
			want.Error = &want.Errors[0]
		}
		s.advance(j, &want)
		if there := j.record(); !reflect.DeepEqual(there, want) {
			t.Fatalf("stored %+v\nwant %+v", there, want)
		}
	})
}

// Times are kept as they are up to the last that fit, and not otherwise.
func TestInstantsAtTheLimits(t *testing.T) {
	for _, s := range []int64{math.MaxInt64 / int64(time.Second), math.MinInt64 / int64(time.Second)} {
		kept := 0
		for d := int64(-2); d <= 2; d++ {
			for _, ns := range []int64{
				0, 1, 145224191, 145224192, 145224193, 854775806, 854775807, 854775808, 999999999,
			} {
				want := time.Unix(s+d, ns)
				i, ok := at(want)
				if ok {
					kept++
				}
				if ok && !i.time().Equal(want) {
					t.Errorf("%d s and %d ns become %v", s+d, ns, i.time())
				}
			}
		}
		if kept == 0 {
			t.Errorf("none of the times at %d s is kept", s)
		}
	}
}

// Of what was in a record nothing is left once it is a job's.
func TestCopyToLeavesNothing(t *testing.T) {
	s := New()
	r := sample()
	r.Unique = nil
	j := s.prepare(r)
	s.adopt(j, r)
	var want, got storage.Record
	j.copyTo(&want)
	fillAll(t, reflect.ValueOf(&got).Elem())
	if j.copyTo(&got); !reflect.DeepEqual(got, want) {
		t.Errorf("copied %+v\nwant %+v", got, want)
	}
}

// fillAll gives every exported field of a struct a value that is not zero, as are those
// of the structs in it.
func fillAll(t *testing.T, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.Type() == reflect.TypeFor[time.Time]():
			f.Set(reflect.ValueOf(time.Unix(1, 1)))
		case f.Type() == reflect.TypeFor[ojs.Args]():
			args, err := ojs.NewArgs("other")
			if err != nil {
				t.Fatal(err)
			}
			f.Set(reflect.ValueOf(args))
		case f.Kind() == reflect.Struct:
			fillAll(t, f)
		case f.CanInt():
			f.SetInt(7)
		case f.CanUint():
			f.SetUint(7)
		case f.CanFloat():
			f.SetFloat(7)
		case f.Kind() == reflect.String:
			f.SetString("other")
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case f.Kind() == reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			t.Fatalf("%v is a %v", v.Type().Field(i).Name, f.Type())
		}
		if f.IsZero() {
			t.Fatalf("%s is zero", v.Type().Field(i).Name)
		}
	}
}

// A job gives back what it was made of, compact or not, also in the memory of another.
func TestJobHoldsRecord(t *testing.T) {
	instants := []time.Time{
		{}, time.Unix(0, 0).UTC(), time.Unix(0, math.MinInt64).UTC(), time.Unix(0, math.MaxInt64).UTC(),
		time.Date(2026, 3, 1, 12, 0, 0, 1, time.UTC),
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	args, err := ojs.NewArgs("args")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		for range 5 {
			r := sample()
			r.State = rapid.SampledFrom(ojs.AllStates()).Draw(t, "state")
			r.Type = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "type")
			r.Args = args
			some := func(name string) bool { return rapid.IntRange(0, 9).Draw(t, name) == 0 }
			at := func(name string) (at time.Time) {
				if some(name) {
					at = rapid.SampledFrom(instants).Draw(t, "time")
				}
				return at
			}
			r.CreatedAt = rapid.SampledFrom(instants).Draw(t, "created")
			r.ScheduledAt, r.EnqueuedAt, r.StartedAt, r.ExpiresAt = at("scheduled"), at("enqueued"),
				at("started"), at("expires")
			r.NextRetryAt, r.FinishedAt, r.DeadLetteredAt, r.LeaseUntil = at("retry"), at("finished"),
				at("dead"), at("lease")
			if some("numbers") {
				r.Priority = rapid.SampledFrom([]int{1, math.MinInt32, math.MaxInt32, math.MaxInt}).Draw(
					t, "priority")
				r.Attempt = rapid.SampledFrom([]int{1, -1, math.MaxInt32 + 1}).Draw(t, "attempt")
				r.Progress = rapid.SampledFrom([]float64{0.5, 1, -1}).Draw(t, "progress")
			}
			switch rapid.IntRange(0, 20).Draw(t, "more") {
			case 0:
				r.Meta = map[string]any{"k": "v"}
			case 1:
				r.Errors, r.Error = []ojs.Failure{{Message: "m"}}, &ojs.Failure{Message: "n"}
			case 2:
				r.Result, r.Checkpoint = json.RawMessage("1"), json.RawMessage("2")
			case 3:
				r.RateLimit = &ojs.RateLimit{Key: "k", Concurrency: 1}
			case 4:
				r.Unique.Key, r.Fingerprint = "key", "f"
			case 5:
				r.Unique, r.Fingerprint = nil, "f"
			case 6:
				r.Extra = map[string]json.RawMessage{"x": json.RawMessage("1")}
			case 7:
				r.Retry.NonRetryableErrors = []string{"e"}
			case 8:
				r.Worker, r.Fingerprint = "w", "f"
			}
			want := r.Copy()
			want.Version = 1
			j := s.prepare(r)
			s.adopt(j, r)
			if got := j.record(); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
			if int64(j.created) != rule.Nanos(r.CreatedAt) ||
				rule.Nanos(j.wakeAt()) != rule.Nanos(r.WakeAt()) ||
				!j.deadline().Equal(r.Deadline()) || j.fingerprint() != r.Fingerprint ||
				j.deadLettered() != r.DeadLettered() ||
				r.State.Terminal() && rule.Nanos(j.finishedAt()) != rule.Nanos(r.FinishedAt) {
				t.Fatalf("parts of %+v differ", want)
			}
			for _, now := range instants {
				if j.expired(now) != r.Expired(now) {
					t.Fatalf("expired at %v: %t", now, j.expired(now))
				}
			}
			if rapid.Bool().Draw(t, "recycle") {
				s.leaves(j.kind)
				s.spares.give(j)
			}
		}
	})
}
