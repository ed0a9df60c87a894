package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/ojsengine/ojs/internal/foreign"
)

// contentPolicy is the Content-Security-Policy of every answer: nothing but the
// dashboard's own files, and no frame around it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard sets the headers of every answer, and refuses forged posts and requests that the
// authorizer does not let read.
func (h *Handler) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	for _, o := range h.conf.origins {
		if err := cross.AddTrustedOrigin(o); err != nil {
			panic(err) // WithTrustedOrigins has checked them
		}
	}
	cross.SetDenyHandler(http.HandlerFunc(h.forged))
	checked := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", contentPolicy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "same-origin") // no-referrer would make the Origin of forms null
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cache-Control", "no-store")
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodPost:
		default:
			head.Set("Allow", "GET, HEAD, POST")
			http.Error(w, "use GET, HEAD or POST", http.StatusMethodNotAllowed)
			return
		}
		if (h.conf.authorize == nil || len(h.conf.hosts) > 0) && !h.named(r.Host) {
			h.problem(w, r, problem{Status: http.StatusForbidden, Title: "Not permitted",
				Text: "The pages do not answer under this name: give dashboard.New WithHosts, or WithAuthorizer alone."})
			return
		}
		if err := h.may(r, Action{Do: Read}); err != nil {
			h.refuse(w, r, err)
			return
		}
		limitForm(w, r)
		checked.ServeHTTP(w, r)
	})
}

// named reports whether pages whose hosts are checked answer under one: under localhost,
// an address, or a name that the program has given. A page of another site can have its
// own name lead here, and no address.
func (h *Handler) named(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(h.conf.hosts, func(name string) bool {
			return name == "*" || strings.EqualFold(name, host)
		})
}

// forged answers a post that a page of another origin seems to have sent.
func (h *Handler) forged(w http.ResponseWriter, r *http.Request) {
	h.problem(w, r, problem{
		Status: http.StatusForbidden,
		Title:  "This form came from another origin",
		Text:   "The browser says that the form was sent from a page of another origin, so nothing was done.",
		Origin: r.Header.Get("Origin"),
		Host:   r.Host,
	})
}

// refuse answers a request for which there is no permission.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.problem(w, r, problem{Status: http.StatusForbidden, Title: "Not permitted",
		Text: foreign.ErrorText(err)})
}
