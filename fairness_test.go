package ojs_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

func TestFairnessOptions(t *testing.T) {
	for name, opt := range map[string]ojs.Option{
		"no key":          ojs.WithFairnessKey("", 1),
		"a long key":      ojs.WithFairnessKey(strings.Repeat("k", 256), 1),
		"not UTF-8":       ojs.WithFairnessKey("\xff", 1),
		"a zero byte":     ojs.WithFairnessKey("a\x00", 1),
		"a weight of -1":  ojs.WithFairnessKey("k", -1),
		"a large weight":  ojs.WithFairnessKey("k", 1001),
		"no member":       ojs.WithFairnessBy("tenant", 1),
		"a member's -1":   ojs.WithFairnessBy("args.tenant", -1),
		"a member's 1001": ojs.WithFairnessBy("args.tenant", 1001),
	} {
		o := ojs.DefaultOptions()
		o.Apply(opt)
		if err := o.Validate(); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := ojs.DefaultOptions()
	o.Apply(ojs.WithFairnessBy("args.tenant", 2), ojs.WithFairnessKey("k", 1000))
	want := ojs.Fairness{Key: "k", Weight: 1000}
	if err := o.Validate(); err != nil || o.FairnessBy != "" || o.Fairness != want {
		t.Errorf("options %+v, %v", o.Fairness, err)
	}
}

func TestFairnessOnTheWire(t *testing.T) {
	d, err := ojs.ParseDraft([]byte(`{"type":"a","args":[1],"fairness":{"key":"tenant 7","weight":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	o := ojs.DefaultOptions()
	o.Apply(d.Options()...)
	want := ojs.Fairness{Key: "tenant 7", Weight: 3}
	if o.Fairness != want {
		t.Errorf("the draft has %+v, not %+v", o.Fairness, want)
	}
	job := ojs.JobInfo{Fairness: want}
	job.ID, job.Type, job.Queue = "0190a5f4-7b1e-7cc0-8000-000000000001", "a", ojs.DefaultQueue
	job.State, job.Retry.MaxAttempts = ojs.StateAvailable, 1
	b, err := json.Marshal(job)
	if err != nil || !strings.Contains(string(b), `"fairness":{"key":"tenant 7","weight":3}`) {
		t.Errorf("encoded as %s, %v", b, err)
	}
	var back ojs.JobInfo
	if err := json.Unmarshal(b, &back); err != nil || back.Fairness != want {
		t.Errorf("decoded as %+v, %v", back.Fairness, err)
	}
	for _, bad := range []string{`"k"`, `{"weight":1}`, `{"key":"k","weight":0.5}`, `{"key":"k","more":1}`} {
		var f ojs.Fairness
		if err := json.Unmarshal([]byte(bad), &f); !errors.Is(err, ojs.ErrInvalid) {
			t.Errorf("%s is decoded as %+v, %v", bad, f, err)
		}
	}
}
