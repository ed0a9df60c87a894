package frameworks

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/storage/memory"
)

// The dashboard works under a path of each router.
func TestDashboard(t *testing.T) {
	eng, err := engine.New[string](memory.New())
	must(t, err)
	pages, err := dashboard.New(eng)
	must(t, err)
	t.Cleanup(func() { must(t, pages.Close()) })
	at := http.StripPrefix("/admin/jobs", pages)

	mux := http.NewServeMux()
	mux.Handle("/admin/jobs/", at)

	overChi := chi.NewRouter()
	overChi.Mount("/admin/jobs", at)

	gin.SetMode(gin.ReleaseMode)
	overGin := gin.New()
	overGin.Any("/admin/jobs/*page", gin.WrapH(at))

	overEcho := echo.New()
	overEcho.Any("/admin/jobs/*", echo.WrapHandler(at))

	for name, router := range map[string]http.Handler{
		"net/http": mux, "chi": overChi, "gin": overGin, "echo": overEcho,
	} {
		for path, want := range map[string]string{
			"/admin/jobs/": "Overview", "/admin/jobs/queues/": "Queues",
		} {
			w := httptest.NewRecorder()
			router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %s is %d: %.200s", name, path, w.Code, w.Body)
			}
		}
	}
}
