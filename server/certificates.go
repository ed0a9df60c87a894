package server

import (
	"crypto/x509"
	"net/http"
	"slices"
	"strings"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/draft"
)

// Certificate says who a client certificate proves.
type Certificate struct {
	Name   string  // of the principal
	Holder string  // "cn:" and the common name, or "dns:", "uri:" or "email:" and an alternative name
	Grants []Grant // what it permits
}

// Certificates prove requests by client certificates (F190). Set the TLSConfig of the
// http.Server: ClientCAs, and ClientAuth to tls.RequireAndVerifyClientCert, or to
// tls.VerifyClientCertIfGiven beside keys. It is an Authenticator, and safe for
// concurrent use.
type Certificates struct {
	clock clock.Clock
	list  []Certificate
}

// NewCertificates makes an Authenticator of certificates. A connection may outlive its
// certificate, which the clock ends; nil: the wall clock.
func NewCertificates(c clock.Clock, list ...Certificate) (*Certificates, error) {
	if c == nil {
		c = clock.New()
	}
	for _, cert := range list {
		switch kind, of, _ := strings.Cut(cert.Holder, ":"); {
		case of == "" || !slices.Contains([]string{"cn", "dns", "uri", "email"}, kind):
			return nil, draft.Invalid("certificate.holder",
				"%q of %q is none: write cn:mailer, dns:mailer.example.org, uri:... or email:...",
				cert.Holder, cert.Name)
		}
		if err := checkGrants("certificate.grants", cert.Name, cert.Grants); err != nil {
			return nil, err
		}
	}
	return &Certificates{c, slices.Clone(list)}, nil
}

// Authenticate proves a request by the certificate that its connection has verified.
func (l *Certificates) Authenticate(r *http.Request) (*Principal, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return nil, nil
	}
	now := l.clock.Now()
	for _, cert := range r.TLS.VerifiedChains[0] {
		if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
			return nil, nil
		}
	}
	holders := holdersOf(r.TLS.VerifiedChains[0][0])
	for i := range l.list {
		if c := &l.list[i]; slices.Contains(holders, c.Holder) {
			return &Principal{Name: c.Name, Grants: c.Grants}, nil
		}
	}
	return nil, nil
}

// holdersOf are the names of a certificate, as Certificate.Holder has them.
func holdersOf(cert *x509.Certificate) (list []string) {
	if cn := cert.Subject.CommonName; cn != "" {
		list = append(list, "cn:"+cn)
	}
	for _, name := range cert.DNSNames {
		list = append(list, "dns:"+name)
	}
	for _, u := range cert.URIs {
		list = append(list, "uri:"+u.String())
	}
	for _, address := range cert.EmailAddresses {
		list = append(list, "email:"+address)
	}
	return list
}

// Authenticators prove a request by the first of them that can, such as Certificates and
// then Keys.
type Authenticators []Authenticator

// Authenticate asks each in turn. An error of one ends it.
func (l Authenticators) Authenticate(r *http.Request) (*Principal, error) {
	for _, a := range l {
		if who, err := a.Authenticate(r); who != nil || err != nil {
			return who, err
		}
	}
	return nil, nil
}

// auditor is an Authenticator that a server's audit follows.
type auditor interface{ follow(audit func(AuditEntry)) }

func (l Authenticators) follow(audit func(AuditEntry)) {
	for _, a := range l {
		if a, ok := a.(auditor); ok {
			a.follow(audit)
		}
	}
}
