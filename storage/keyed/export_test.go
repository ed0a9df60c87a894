package keyed

// Waiting returns how many calls wait for a transaction.
func (s *Storage) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Tables whose values the tests damage.
const (
	JobTable   = byte(jobTable)
	CronTable  = byte(cronTable)
	AsideTable = byte(asideTable)
)
