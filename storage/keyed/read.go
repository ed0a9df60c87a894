package keyed

import (
	"errors"

	"github.com/ojsengine/ojs/storage"
)

// Jobs returns the range of the keys under which a store has its jobs, each with a value
// for ReadJob, in the order of insertion.
func Jobs() (from, to []byte) { return newKey(jobTable), newKey(jobTable + 1) }

// ReadJob returns the job of a value. It is for programs that show people what a store
// holds.
func ReadJob(value []byte) (storage.Record, error) {
	var j job
	err := j.decode(value, nil)
	if err == nil && j.ID == "" {
		err = errors.New("the record is damaged")
	}
	return j.Record, err
}
