package dashboard

import (
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage"
)

type systemData struct {
	Name       string
	Manifest   engine.Manifest
	Health     engine.Health
	Quarantine []storage.Quarantined // the first of them
}

// system shows what the engine says of itself, and the records that do not decode.
func (h *Handler) system(p *page) error {
	ctx := p.r.Context()
	data := &systemData{Name: h.eng.String(), Manifest: h.eng.Manifest(), Health: h.health(ctx)}
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
