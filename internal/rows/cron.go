package rows

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/storage"
)

// cronDocument is a recurring job. Raw JSON is kept as text, which encoding/json does not
// rewrite.
type cronDocument struct {
	Name, Description, Schedule, TimeZone, Overlap string    `json:",omitzero"`
	Paused                                         bool      `json:",omitzero"`
	Type                                           string    `json:",omitzero"`
	Args                                           text      `json:",omitzero"`
	Options                                        options   `json:",omitzero"`
	CreatedAt, LastRun, NextRun                    time.Time `json:",omitzero"`
	Runs                                           int       `json:",omitzero"`
	LastJobID                                      string    `json:",omitzero"`
	Missed                                         string    `json:",omitzero"`
	MissedLimit                                    int       `json:",omitzero"`
	Gap                                            string    `json:",omitzero"`
	RunOnStart, Template                           bool      `json:",omitzero"`
	History                                        []cronRun `json:",omitzero"`
}

type cronRun struct {
	Due            time.Time `json:",omitzero"`
	JobID, Outcome string    `json:",omitzero"`
	Manual         bool      `json:",omitzero"`
}

type options struct {
	ID                           string          `json:",omitzero"`
	TypeVersion                  string          `json:",omitzero"`
	Queue                        string          `json:",omitzero"`
	Priority                     int             `json:",omitzero"`
	Delay                        time.Duration   `json:",omitzero"`
	ScheduledAt                  time.Time       `json:",omitzero"`
	TTL                          time.Duration   `json:",omitzero"`
	ExpiresAt                    time.Time       `json:",omitzero"`
	Timeout, TotalTimeout, Lease time.Duration   `json:",omitzero"`
	EnqueueTTL                   time.Duration   `json:",omitzero"`
	ResultTTL                    time.Duration   `json:",omitzero"`
	Retry                        retry           `json:",omitzero"`
	Meta                         meta            `json:",omitzero"`
	RateLimit                    *rateLimit      `json:",omitzero"`
	RateLimitBy                  string          `json:",omitzero"`
	Fairness                     fairness        `json:",omitzero"`
	FairnessBy                   string          `json:",omitzero"`
	Unique                       *unique         `json:",omitzero"`
	Pending                      bool            `json:",omitzero"`
	Name                         string          `json:",omitzero"`
	DependsOn                    []string        `json:",omitzero"`
	Condition                    ojs.Condition   `json:",omitzero"`
	Join                         bool            `json:",omitzero"`
	OrderingKey                  string          `json:",omitzero"`
	Extra                        map[string]text `json:",omitzero"`
}

// text is raw JSON: in a string, or as base64 in a list, if it is not UTF-8, which no
// string of JSON can hold.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal([][]byte{[]byte(t)})
}

func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		var list [1][]byte
		err := json.Unmarshal(b, &list)
		*t = text(list[0])
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// copyAlike copies fields of the same name and kind from one struct to another, and the
// elements of lists and maps. Values of maps are converted. Other fields stay.
func copyAlike(to, from reflect.Value) {
	switch same := to.Kind() == from.Kind(); {
	case same && from.CanConvert(to.Type()):
		to.Set(from.Convert(to.Type()))
	case !same:
	case to.Kind() == reflect.Struct:
		for i := range to.NumField() {
			if f := from.FieldByName(to.Type().Field(i).Name); f.IsValid() && to.Field(i).CanSet() {
				copyAlike(to.Field(i), f)
			}
		}
	case to.Kind() == reflect.Slice && !from.IsNil():
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyAlike(to.Index(i), from.Index(i))
		}
	case to.Kind() == reflect.Map && !from.IsNil():
		to.Set(reflect.MakeMapWithSize(to.Type(), from.Len()))
		for k, v := range from.Seq2() {
			to.SetMapIndex(k, v.Convert(to.Type().Elem()))
		}
	}
}

// EncodeCron returns a recurring job as a document, without its version.
func EncodeCron(c *storage.Cron) ([]byte, error) {
	d := cronDocument{Args: text(c.Args.String())}
	copyAlike(reflect.ValueOf(&d).Elem(), reflect.ValueOf(c).Elem())
	d.NextRun = d.NextRun.UTC()
	b, err := json.Marshal(&d)
	if err != nil {
		return nil, fmt.Errorf("ojs: recurring job %s does not encode: %w", c.Name, err)
	}
	return b, nil
}

// CheckDocument returns, for a person, why a document is none of its kind; nil: it is. It
// gives the document of a recurring job its Due.
func CheckDocument(kind storage.Kind, d *storage.Document) error {
	if d.Version < 1 || d.Version > MaxCount {
		return fmt.Errorf("version: %d is not from 1 to %d", d.Version, MaxCount)
	}
	if kind != storage.KindCron {
		return nil
	}
	c, err := DecodeCron(d)
	if err == nil {
		d.Due = c.NextRun
	}
	return err
}

// DecodeCron returns the recurring job of a document. Its error says for a person why the
// document is none.
func DecodeCron(d *storage.Document) (storage.Cron, error) {
	c, err := readCron(d.Data)
	if err == nil && c.Name != d.Name {
		err = fmt.Errorf("name: the entry of %q says that it is that of %q", d.Name, c.Name)
	}
	c.Version = d.Version
	return c, err
}

// readCron returns the recurring job of a document, without its version.
func readCron(entry []byte) (storage.Cron, error) {
	var d cronDocument
	if err := json.Unmarshal(entry, &d); err != nil {
		return storage.Cron{}, fmt.Errorf("entry: %w", err)
	}
	args, err := ojs.NewArgs(json.RawMessage(d.Args))
	if err != nil {
		return storage.Cron{}, fmt.Errorf("args: %w", err)
	}
	c := storage.Cron{Args: args}
	copyAlike(reflect.ValueOf(&c).Elem(), reflect.ValueOf(&d).Elem())
	return c, nil
}
