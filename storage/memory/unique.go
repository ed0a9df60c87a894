package memory

// peers are the jobs of one fingerprint, by state and the newest first. One look per
// state tells whether any of them is in the way of a new job, however many there are: if
// the newest is too old, so are the others.
type peers struct {
	byState [len(states)]heap[*job]
	n       int
	first   [1]*job // room for one, as there is almost always
}

func (j *job) before(k *job) bool {
	if j.created != k.created {
		return j.created > k.created
	}
	return j.ord > k.ord
}
func (j *job) moved(to int) { j.rest.peerAt = to }

func (s *store) addPeer(j *job) {
	fp := j.fingerprint()
	if fp == "" {
		return
	}
	p := orMake(s.unique, fp, func() *peers {
		p := new(peers)
		p.byState[j.state].items = p.first[:0]
		return p
	})
	p.byState[j.state].push(j)
	p.n++
}

func (s *store) removePeer(j *job) {
	fp := j.fingerprint()
	if fp == "" {
		return
	}
	p := s.unique[fp]
	p.byState[j.state].remove(j.rest.peerAt)
	if p.n--; p.n == 0 {
		delete(s.unique, fp)
	}
}
