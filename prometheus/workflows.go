package ojsprometheus

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ojsengine/ojs/event"
)

// workflows are the series by the name of a workflow.
type workflows struct {
	created, ended, steps *prometheus.CounterVec
	duration              *prometheus.HistogramVec

	most int

	mu     sync.Mutex // guards byName
	byName map[string]*workflowSeries
}

// workflowSeries is what the workflows of one name have done.
type workflowSeries struct {
	created, stepsCompleted, stepsFailed prometheus.Counter
	ended                                map[event.Type]prometheus.Counter
	duration                             map[event.Type]*series
}

// workflowEnds are the states that the events of ends stand for.
var workflowEnds = map[event.Type]string{
	event.WorkflowCompleted:   "completed",
	event.WorkflowFailed:      "failed",
	event.WorkflowCompensated: "compensated",
	event.WorkflowCancelled:   "cancelled",
}

// workflowBuckets bound how long workflows take, in seconds.
var workflowBuckets = []float64{.1, .5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 21600, 86400, 604800}

func newWorkflows(cfg *config) *workflows {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace,
			Subsystem: "workflow", Name: name, Help: help}, labels)
	}
	return &workflows{
		most: cfg.maxPairs, byName: make(map[string]*workflowSeries),
		created: counter("created_total", "Workflows stored.", "workflow"),
		ended: counter("ended_total", "Workflows that ended, by the state they ended in.",
			"workflow", "state"),
		steps: counter("step_ended_total",
			"Steps of workflows that completed or failed, callbacks and compensations included.",
			"workflow", "state"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace,
			Subsystem: "workflow", Name: "duration_seconds",
			Help: "How long workflows took from their creation to their end.", Buckets: workflowBuckets},
			[]string{"workflow", "state"}),
	}
}

func (ws *workflows) vectors() []prometheus.Collector {
	return []prometheus.Collector{ws.created, ws.ended, ws.steps, ws.duration}
}

// of returns the series of a name, or those of the rest.
func (ws *workflows) of(name string) *workflowSeries {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if s := ws.byName[name]; s != nil {
		return s
	}
	if len(ws.byName) >= ws.most {
		name = other
		if s := ws.byName[name]; s != nil {
			return s
		}
	}
	l := label(name)
	s := &workflowSeries{
		created:        ws.created.WithLabelValues(l),
		stepsCompleted: ws.steps.WithLabelValues(l, "completed"),
		stepsFailed:    ws.steps.WithLabelValues(l, "failed"),
		ended:          make(map[event.Type]prometheus.Counter),
		duration:       make(map[event.Type]*series),
	}
	for event, state := range workflowEnds {
		s.ended[event] = ws.ended.WithLabelValues(l, state)
		s.duration[event] = &series{make: func() prometheus.Observer {
			return ws.duration.WithLabelValues(l, state)
		}}
	}
	ws.byName[name] = s
	return s
}

// observe counts an event of a workflow.
func (ws *workflows) observe(ev *event.Event) {
	s := ws.of(ev.Workflow.Name)
	switch ev.Type {
	case event.WorkflowCreated:
		s.created.Inc()
	case event.WorkflowStepCompleted:
		s.stepsCompleted.Inc()
	case event.WorkflowStepFailed:
		s.stepsFailed.Inc()
	default:
		if ended := s.ended[ev.Type]; ended != nil {
			ended.Inc()
			s.duration[ev.Type].observe(ev.Duration)
		}
	}
}
