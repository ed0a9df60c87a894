package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/codec"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
)

// Rule K016: pages have [encrypted] in the place of what a codec has encoded. Only the
// file of a job has it as it is stored.
func TestEncodedPayloads(t *testing.T) {
	key, err := codec.NewKey("k1", bytes.Repeat([]byte{1}, codec.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := codec.NewRing(key)
	if err != nil {
		t.Fatal(err)
	}
	s := newSiteOn(t, []engine.Option{engine.WithCodec(codec.AES256GCM(ring))})
	s.eng.Handle("works", func(ctx context.Context, _ *ojs.Job[any]) error {
		return handler.SetResult(ctx, "receipt")
	})
	s.eng.Handle("fails", func(context.Context, *ojs.Job[any]) error {
		return ojs.Discard(&ojs.Error{Message: "no", Details: map[string]any{"card": 4242}})
	})
	ids := []string{s.enqueue("works", "a secret"), s.enqueue("fails", "a secret")}
	s.run()
	stored := regexp.MustCompile(`"data":"[^"]*?([^"+]{12})`) // HTML escapes the "+"
	for _, id := range ids {
		raw, err := json.Marshal(s.job(id))
		if err != nil {
			t.Fatal(err)
		}
		found := stored.FindAllStringSubmatch(string(raw), -1)
		page, list := s.ok("/jobs/"+id+"/"), s.ok("/jobs/")
		for _, m := range found {
			if strings.Contains(page+list, m[1]) {
				t.Errorf("a page shows %s", m[1])
			}
		}
		if n := strings.Count(page, "[encrypted]"); len(found) < 2 || n != 2 {
			t.Errorf("%d ciphertexts, the page has %d of 2 marks", len(found), n)
		}
		if strings.Count(list, "[encrypted]") != len(ids) {
			t.Errorf("the list has no mark for each job:\n%s", list)
		}
		if file := s.ok("/jobs/" + id + "/raw/"); !strings.Contains(file, found[0][1]) {
			t.Error("the file has not what is stored")
		}
	}
}
