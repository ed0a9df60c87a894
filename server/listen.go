package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/draft"
)

// Deadlines of a request (F195).
const (
	headerTime = 30 * time.Second
	bodyTime   = 60 * time.Second
	idleTime   = 120 * time.Second
	writeTime  = 60 * time.Second
	maxHeader  = 64 << 10
)

// CheckListen refuses an address that other machines can reach if nothing proves who
// calls (F192): name a loopback address, or use WithAuthenticator.
func (s *Server) CheckListen(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return draft.Invalid("address", "%q is not host:port", address)
	}
	if s.conf.auth != nil || loopback(strings.Trim(host, "[]")) {
		return nil
	}
	return draft.Invalid("address",
		"%q can be reached from other machines, and every caller may do everything: "+
			"listen on 127.0.0.1, or give an authenticator", address)
}

// loopback reports whether only this machine can reach a host.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// HTTPServer makes an http.Server with the binding's deadlines and, for TLS, versions 1.2
// and 1.3 with forward secrecy (F190, F195). The handler is a Server, or one that has it
// under some paths.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
			tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		}},
	}
}

// wall is the clock of connections, whose deadlines are times of the wall clock.
var wall = clock.New()

// reading bounds the time for the body of a request. Done reading ends the bound.
func (c *call) reading(done bool) {
	var deadline time.Time
	if !done {
		deadline = wall.Now().Add(bodyTime)
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(deadline) // a test has no connection
}

// send writes a part of an answer within writeTime. The error says that the caller has
// hung up.
func (c *call) send(b []byte) error {
	control := http.NewResponseController(c.w)
	bounded := control.SetWriteDeadline(wall.Now().Add(writeTime)) == nil
	_, err := c.w.Write(b)
	if err == nil {
		err = control.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}
	if bounded { // another handler may use the connection next
		_ = control.SetWriteDeadline(time.Time{})
	}
	return err
}
