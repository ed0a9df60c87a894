package dashboard

import (
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs"
)

// A list has chosen members of the args as columns. Its links keep them, and what is
// masked elsewhere is masked in them.
func TestMembersAsColumns(t *testing.T) {
	s := newSite(t)
	s.enqueue("email.send", map[string]any{"to": "ada@example.com", "order": map[string]any{"id": 4711},
		"a.b": []any{map[string]any{"c": true}}, "password": "hunter2", "<b>": 1})
	s.enqueue("email.send", []any{"first", "second"})
	body := s.has("/jobs/?q=type:email.send&cols=to,order.id,a.b.0.c,password,1",
		">ada@example.com</td>", ">4711</td>", ">true</td>", ">second</td>", `data-name="order.id"`,
		`name="cols" value="to,order.id,a.b.0.c,password,1"`,
		`href="./?q=state%3adiscarded%20type%3aemail.send&amp;cols=to%2corder.id`,
		`&amp;cols=to%2ca.b.0.c%2cpassword%2c1" aria-current="true">− order.id<`)
	if strings.Contains(body, "hunter2") {
		t.Error("a column shows what is masked")
	}
	if body := s.ok("/jobs/?q=type:email.send"); strings.Contains(body, "cols=&") ||
		!strings.Contains(body, `cols=to">+ to<`) {
		t.Error("a list without columns offers none, or keeps none")
	}
	if w := s.get("/jobs/?form=1&type=x&cols=to"); w.Header().Get("Location") != "./?q=type%3Ax&cols=to" {
		t.Errorf("the form leads to %s", w.Header().Get("Location"))
	}
	got := membersOf("args.to, to,,x y z u v w" + strings.Repeat("o", 200))
	if want := []string{"to", "x", "y", "z", "u", "v"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	job := &ojs.JobInfo{}
	if cells := membersOf("to,1").Cells(job); !slices.Equal(cells, []string{"", ""}) {
		t.Errorf("a job without args has %q", cells)
	}
}
