package engine

import (
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/storage"
)

// shareBy gives a job the fairness key of its value of a member (ojs.WithFairnessBy).
func (c *core) shareBy(r *storage.Record, o *ojs.Options, fromElsewhere bool) error {
	if fromElsewhere && strings.HasPrefix(o.FairnessBy, "args.") && codec.IsEncoded(r.Args, r.Meta) {
		return invalid("fairness_by",
			"names a member of args, which come encoded; give the key of the plain args by ojs.WithFairnessKey")
	}
	key, err := policy.FairnessKey(o.FairnessBy, &r.JobInfo)
	if err != nil {
		return err
	}
	if r.Fairness.Key = key; key == "" {
		r.Fairness.Weight = 0
	}
	return nil
}
