package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// access is who may see the dashboard, by OJS_USER and OJS_PASSWORD (basic
// authentication) or OJS_TOKEN (a bearer token, or the password of any user). Without
// any of them only this machine may.
type access struct{ user, password, token string }

func accessOf(env func(string) string) (access, error) {
	a := access{env("OJS_USER"), env("OJS_PASSWORD"), env("OJS_TOKEN")}
	if (a.user == "") != (a.password == "") {
		return a, usageError{errors.New("OJS_USER and OJS_PASSWORD belong together: set both or neither")}
	}
	return a, nil
}

func (a access) open() bool { return a.user == "" && a.token == "" }

// check refuses an address that other machines could reach without a log-in.
func (a access) check(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usageError{err}
	}
	if !a.open() || local(host) {
		return nil
	}
	return usageError{fixError{errors.New("--listen " + address + " can be reached from other machines"),
		"set OJS_USER and OJS_PASSWORD, or OJS_TOKEN, or listen on 127.0.0.1"}}
}

// local reports whether a host is this machine.
func local(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// guard refuses requests without the log-in. If there is none, it refuses requests that
// name another host than this machine, so that a page elsewhere whose name leads to this
// machine cannot read the dashboard.
func (a access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.open() {
			host, _, err := net.SplitHostPort(r.Host)
			if err != nil {
				host = r.Host
			}
			if !local(host) {
				http.Error(w, "ojs: open the dashboard as localhost or 127.0.0.1, or set OJS_TOKEN, "+
					"or OJS_USER and OJS_PASSWORD",
					http.StatusForbidden)
				return
			}
		} else if !a.permits(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="ojs", charset="UTF-8"`)
			http.Error(w, "ojs: log in with OJS_USER and OJS_PASSWORD, or with OJS_TOKEN as the password",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a access) permits(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") {
		return a.token != "" && equal(token, a.token)
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		return false
	}
	byToken := a.token != "" && equal(password, a.token)
	byUser := a.user != "" && equal(user, a.user) && equal(password, a.password)
	return byToken || byUser
}

// equal compares in a time that does not depend on the texts.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// actor is the name with which a request has logged in.
func actor(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	return user
}
