package dashboard

import (
	"time"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
)

type systemData struct {
	Name         string
	Manifest     engine.Manifest
	Settings     *engine.Description // nil: the engine never runs
	InsertClaims bool                // of the storage
	Health       engine.Health
	Ahead        time.Duration // of the storage's clock
	Clocked      bool          // the storage has one
	Kept         []kept
	Quarantine   []storage.Quarantined // the first of them
}

// kept is how long and how many finished jobs of a kind are kept. 0 is no limit.
type kept struct {
	Name string
	Age  time.Duration
	Most int
}

// keptBy are the rules of a retention.
func (p *page) keptBy(r engine.Retention) []kept {
	return []kept{
		{p.T("completed"), r.Completed, r.MaxFinished},
		{p.T("cancelled"), r.Cancelled, r.MaxFinished},
		{p.T("discarded"), r.Discarded, r.MaxFinished},
		{p.T("Dead letters"), r.DeadLetters, r.MaxDeadLetters},
	}
}

// Behind is how far the storage's clock is behind that of this process.
func (d *systemData) Behind() time.Duration { return -d.Ahead }

// system shows what the engine says of itself and of its storage, and the records that do
// not decode.
func (h *Handler) system(p *page) error {
	ctx := p.r.Context()
	data := &systemData{Name: h.eng.String(), Health: h.health(ctx)}
	settings := h.eng.Describe()
	data.Manifest, data.Kept = settings.Manifest, p.keptBy(settings.Retention)
	data.InsertClaims = settings.Storage.InsertClaims
	if !h.conf.visitor {
		data.Settings = &settings
	}
	data.Ahead, data.Clocked = settings.ClockAhead, settings.HasClock
	for record, err := range h.eng.Quarantine().List(ctx) {
		if unsupported(err) {
			break
		}
		if err != nil {
			return err
		}
		data.Quarantine = append(data.Quarantine, record)
		if len(data.Quarantine) == pageSize {
			break
		}
	}
	return p.show("system", p.T("System"), data)
}
