package memory

import "hash/maphash"

// hashes makes hashes of ids.
type hashes struct{ seed maphash.Seed }

func newHashes() hashes { return hashes{maphash.MakeSeed()} }

// near is the hash that a job is looked for by. The ids that an engine makes within a
// millisecond count on in their first 18 characters (RFC 9562, section 6.2, method 1),
// and their hashes do so, too: four ids share a bucket of the table, the next four have
// the next one, and so on for sixteen. Under load, producers, workers and pruning go
// through many jobs in the order in which the jobs were made. They wait for the table's
// memory once for several jobs, not once for each.
func (h hashes) near(id string) uint32 {
	const digits, stamp = 36, 17
	if len(id) != digits || id[14] != '7' {
		return h.apart(id)
	}
	digit := uint32(id[stamp]) - '0'
	if digit > 9 {
		digit -= 'a' - '0' - 10
	}
	// Tables go by the lower bits. The upper ones tell ids of one bucket from each other.
	const lower = 1<<24 - 1
	of16 := uint32(maphash.String(h.seed, id[:stamp]))
	return (of16+digit/4)&lower | (of16&^lower)>>2&^lower | digit<<30
}

// apart is a hash that has nothing to do with those of other ids.
func (h hashes) apart(id string) uint32 { return uint32(maphash.String(h.seed, id)) }
