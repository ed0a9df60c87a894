package telemetry

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// A quantile is at most an eighth longer or shorter than the one of the durations
// themselves.
func TestQuantiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h Histogram
		var all []time.Duration
		for range 1 + rnd.IntN(500) {
			d := time.Duration(float64(int64(1000)<<rnd.IntN(30)) * (1 + rnd.Float64()))
			all = append(all, d)
			var one Histogram
			one.Observe(d)
			h.Add(&one)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.95, 0.99, 1} {
			want := all[max(0, int(q*float64(len(all))+0.999999)-1)]
			if got := h.Quantile(q); got < want*7/8-time.Microsecond || got > want*9/8+time.Microsecond {
				t.Fatalf("quantile %v of %d: %v, want %v", q, len(all), got, want)
			}
		}
	}
	var none Histogram
	if none.Quantile(0.5) != 0 {
		t.Error("a histogram without durations has a median")
	}
	none.Observe(100 * 365 * 24 * time.Hour)
	if got := none.Quantile(0.5); got < 76*time.Hour {
		t.Errorf("a century: %v", got)
	}
}

// Each duration is in one bucket, whose bound it is below and that begins at the bound of
// the one before.
func TestBuckets(t *testing.T) {
	for n := range int64(1 << 12) {
		d := time.Duration(n) * time.Microsecond
		i := bucketOf(d)
		if d >= bound(i) || i > 0 && d < bound(i-1) || bucketOf(bound(i)-1) != i ||
			bucketOf(bound(i)) != i+1 {
			t.Fatalf("%v is in bucket %d, up to %v", d, i, bound(i))
		}
	}
	if bucketOf(-1) != 0 || bucketOf(1<<63-1) != bucketOf(time.Microsecond<<38) {
		t.Error("a duration that is negative or too long has no bucket")
	}
}

// A meter is read as it was stored. Unknown buckets are left out.
func TestStoredMeters(t *testing.T) {
	m := Meter{Queue: "q", Type: "t", Enqueued: 3, Started: 2}
	m.Wait.Observe(time.Second)
	m.Run.Observe(time.Millisecond)
	m.Run.Observe(2 * time.Hour)
	if got := decodeMeters(encodeMeters([]Meter{m})); !reflect.DeepEqual(got, []Meter{m}) {
		t.Errorf("%+v, want %+v", got, m)
	}
	old := decodeMeters([]byte(`[{"q":"q","t":"t","n":[3,0,0,0,0,0,0,0,0,2],"wait":[1000000000,143,1],"run":[7,0,1,39,2,-1,5,9999,5]}]`))
	if len(old) != 1 || old[0].Enqueued != 3 || old[0].Started != 2 || old[0].Run.Count != 3 {
		t.Fatalf("%+v", old)
	}
	if w := old[0].Wait; w.Count != 1 || w.Sum != time.Second || w.Within(time.Second) != 1 ||
		w.Within(time.Second/2) != 0 {
		t.Errorf("the wait of a second: %+v", w)
	}
}

// A snapshot stays as it is.
func TestSnapshotIsACopy(t *testing.T) {
	var m Meters
	at := time.Now()
	job := &storage.Record{JobInfo: ojs.JobInfo{JobHeader: ojs.JobHeader{Queue: "q", Type: "t", Attempt: 1}}}
	job.EnqueuedAt, job.StartedAt = at, at.Add(time.Second)
	m.Started(job)
	before := m.Snapshot()
	m.Started(job)
	if w := before[0].Wait; w.Count != 1 || w.Within(time.Hour) != 1 {
		t.Errorf("%+v", w)
	}
}

// Recorders take and return types that a program can name.
func TestRecordersHavePublicTypes(t *testing.T) {
	for _, recorder := range []any{new(Recorder), new(FailureRecorder)} {
		of := reflect.TypeOf(recorder)
		for i := range of.NumMethod() {
			f := of.Method(i)
			if name := internalType(f.Type); name != "" {
				t.Errorf("%v.%s has a %s", of, f.Name, name)
			}
		}
	}
}

// internalType names an internal type that a type is made of, "" if there is none.
func internalType(t reflect.Type) string {
	if strings.Contains(t.PkgPath(), "/internal/") {
		return t.String()
	}
	if t.Name() != "" {
		return ""
	}
	var parts []reflect.Type
	switch t.Kind() {
	case reflect.Func:
		for i := range t.NumIn() {
			parts = append(parts, t.In(i))
		}
		for i := range t.NumOut() {
			parts = append(parts, t.Out(i))
		}
	case reflect.Map:
		parts = []reflect.Type{t.Key(), t.Elem()}
	case reflect.Array, reflect.Chan, reflect.Pointer, reflect.Slice:
		parts = []reflect.Type{t.Elem()}
	}
	for _, p := range parts {
		if name := internalType(p); name != "" {
			return name
		}
	}
	return ""
}
