package jobtypes

import (
	"maps"
	"slices"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/draft"
)

// QueueSet is the queues that an engine was given. It is not changed once it is made.
type QueueSet struct {
	Names  []string // in the order given; empty: the engine serves every queue
	Config map[string]Queue
}

// Queue is how an engine treats one of its queues.
type Queue struct {
	Bounds     ojs.RateLimit // in this engine
	Weight     int           // of its share; 0: there are no shares
	MaxDepth   int           // 0: any
	DropOldest bool          // a full queue discards its oldest job
	Blocks     bool          // an enqueue waits while the queue is full
	Defaults   []ojs.Option
	Given      any // the QueueConfig
}

func (s *QueueSet) Has(name string) bool {
	_, ok := s.Config[name]
	return ok
}

// Serves reports whether the engine takes jobs from a queue.
func (s *QueueSet) Serves(queue string) bool { return len(s.Names) == 0 || s.Has(queue) }

// With returns the set with a queue, which is the last if it is new.
func (s *QueueSet) With(name string, q Queue) QueueSet {
	to := QueueSet{slices.Clone(s.Names), maps.Clone(s.Config)}
	if to.Config == nil {
		to.Config = make(map[string]Queue)
	}
	if !s.Has(name) {
		to.Names = append(to.Names, name)
	}
	to.Config[name] = q
	return to
}

// Without returns the set without a queue.
func (s *QueueSet) Without(name string) QueueSet {
	to := QueueSet{slices.Clone(s.Names), maps.Clone(s.Config)}
	to.Names = slices.DeleteFunc(to.Names, func(n string) bool { return n == name })
	delete(to.Config, name)
	return to
}

func (s *QueueSet) hasNoDefaults(queues ...string) bool {
	return !slices.ContainsFunc(queues, func(name string) bool { return len(s.Config[name].Defaults) > 0 })
}

// CheckWeights wants a weight for each queue or for none.
func (s *QueueSet) CheckWeights() error {
	for _, name := range s.Names {
		if (s.Config[name].Weight > 0) != (s.Config[s.Names[0]].Weight > 0) {
			return draft.Invalid("weight", "of queues %q and %q only one has a weight", s.Names[0], name)
		}
	}
	return nil
}
