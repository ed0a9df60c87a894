package ojs

import (
	"fmt"
)

// Fairness is the share of a job's key, such as that of a tenant, in its queue. The zero
// Fairness is none: WithFairnessKey says what keys do.
type Fairness struct {
	// UTF-8 text without zero bytes, at most 255 bytes; "": none
	Key    string `json:"key"`
	Weight int    `json:"weight,omitempty"` // jobs in a round, from 1 to 1000; 0: 1
}

const maxFairnessWeight = 1000

// Validate checks the key and the weight. Its error is an *InvalidError.
func (f Fairness) Validate() error {
	if f.Key == "" {
		return optionError("fairness.key", "is empty: give the name of a tenant, or leave the option out")
	}
	if err := validateKey("fairness.key", f.Key); err != nil {
		return err
	}
	return f.validateWeight()
}

func (f Fairness) validateWeight() error {
	if f.Weight < 0 || f.Weight > maxFairnessWeight {
		return optionError("fairness.weight",
			fmt.Sprintf("%d is not between 1 and %d", f.Weight, maxFairnessWeight))
	}
	return nil
}

// WithFairnessKey has jobs of a queue and priority take turns by their keys, so that a
// tenant with a million jobs does not delay another tenant's single job. In each round a
// key has weight jobs, from 1 to 1000; 0 is 1. A job that becomes available takes a place
// in the next round in which its key has one left. So before a job of a key that has none
// waiting, at most two rounds of each other key start, however many jobs that has.
//
// A higher priority comes before any turn. Jobs without a key take no turns: they start
// in the order in which they became available, behind the jobs that were available then,
// so give each job of a queue a key. Jobs that an engine has prefetched are not
// overtaken. A retried job takes a new turn.
func WithFairnessKey(key string, weight int) Option {
	return func(o *Options) {
		f := Fairness{Key: key, Weight: weight}
		if err := f.Validate(); err != nil {
			o.fail(err)
			return
		}
		o.Fairness, o.FairnessBy = f, ""
	}
}

// WithFairnessBy is WithFairnessKey with the value of a member of the job's args or meta
// as the key. A weight of 0 is 1. Members are named as for WithRateLimitBy:
// "args.tenant", "meta.tenant.id". Write it once, as an option of the job type:
//
//	var SendMail = ojs.Define[Mail]("mail.send", ojs.WithFairnessBy("args.tenant", 1))
//
// The key is made when the job is enqueued, after the enqueue hooks and before a codec
// encodes the args. A string counts as its text and any other value as its JSON. A text
// that is no key, since it is too long, counts as its SHA-256 in hexadecimal. Jobs
// without the member, or with null or "" in it, have no key. WithFairnessKey at the
// enqueue gives a tenant another weight.
//
// Args that come encoded are refused at the enqueue if the member is one of args.
func WithFairnessBy(member string, weight int) Option {
	return func(o *Options) {
		f := Fairness{Weight: weight}
		switch err := f.validateWeight(); {
		case !validMember(member):
			o.fail(optionError("fairness_by", fmt.Sprintf(
				"%q is no member: use \"args.\" or \"meta.\" and its name, such as args.tenant", member)))
		case err != nil:
			o.fail(err)
		default:
			o.Fairness, o.FairnessBy = f, member
		}
	}
}

// UnmarshalJSON decodes an object with "key" and "weight". It refuses unknown members
// with an *InvalidError.
func (f *Fairness) UnmarshalJSON(b []byte) error {
	members, err := decodeObject(b)
	if err != nil {
		return optionError("fairness", err.Error())
	}
	var d Fairness
	for _, m := range members {
		if isNull(m.value) {
			continue
		}
		var err error
		switch m.name {
		case "key":
			d.Key, err = decodeName(m.value)
		case "weight":
			d.Weight, err = decodeInt(m.value)
		default:
			err = fmt.Errorf("unknown member")
		}
		if err != nil {
			return optionError("fairness."+m.name, err.Error())
		}
	}
	if err := d.Validate(); err != nil {
		return err
	}
	*f = d
	return nil
}
