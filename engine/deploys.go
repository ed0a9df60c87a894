package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ojsengine/ojs/storage"
)

// A version is the value deploy/HASH of the storage, with the time of its first report.
// Its key is a hash, since versions may have any characters. An engine with the version
// stores the value again each day, with the time that it has, so that the value outlives
// a program that runs for long.

const (
	deployPrefix = "deploy/"
	deployRenew  = 24 * time.Hour
	deployKeep   = 90 * 24 * time.Hour // as long as the longest tier of the history
	maxVersion   = 200                 // bytes
)

// Deploy is a version of the program that nodes have reported.
type Deploy struct {
	Version string    // Reports.Version, cut after 200 bytes
	At      time.Time // of the first report of a node with it
}

// Deploys returns the versions of the program that nodes have reported for the first time
// from a time on until another, the earliest first. A version that comes back after
// another keeps the time of its first report. It is forgotten when no node has had it for
// 90 days. Nodes that know no version count for nothing.
func (n *Nodes) Deploys(ctx context.Context, from, to time.Time) (list []Deploy, err error) {
	err = n.core.eachValue(ctx, deployPrefix, func(v storage.Value) {
		var d Deploy
		if json.Unmarshal(v.Data, &d) == nil && !d.At.Before(from) && d.At.Before(to) {
			list = append(list, d)
		}
	})
	slices.SortFunc(list, func(a, b Deploy) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Version, b.Version))
	})
	return list, err
}

// deployed is the value of the version of an engine, if it is time to store it.
func (p *reporter) deployed(ctx context.Context) (values []storage.Value, err error) {
	c := p.r.c
	now, version := c.now(), c.reports.Version
	if version == "" || !p.deploy.IsZero() && now.Sub(p.deploy) < deployRenew {
		return nil, nil
	}
	hash := sha256.Sum256([]byte(version))
	v := storage.Value{Key: deployPrefix + hex.EncodeToString(hash[:16]), Expires: now.Add(deployKeep)}
	stored, err := c.store.Values(ctx, now, v.Key, "", 1)
	if err != nil {
		return nil, err
	}
	if len(stored) > 0 {
		v.Data = stored[0].Data
	} else {
		short := strings.ToValidUTF8(version[:min(len(version), maxVersion)], "")
		v.Data, _ = json.Marshal(Deploy{short, now}) // which always encodes
	}
	return []storage.Value{v}, nil
}
