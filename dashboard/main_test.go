package dashboard

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Close leaves nothing behind: no poller, no stream, no operation on many.
func TestCloseLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := newSite(t, WithAuthorizer(AllowAll))
	pages, err := NewMany([]Named{{"a", s.eng}, {"b", s.eng}})
	if err != nil {
		t.Fatal(err)
	}
	_, leaveOther := pages.engines[1].join()
	defer leaveOther()
	_, leave := s.pages.join()
	defer leave()
	s.enqueue("t", 1)
	if w := s.do("POST", "/act/", "do=cancel&all=1&q="); w.Code != 303 {
		t.Fatal(w.Code)
	}
	if err := s.pages.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pages.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
}
