package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/test/bindingtest"
	"github.com/ojsengine/ojs/server"
)

// A strict server refuses what the security text does (F174).
func TestStrictness(t *testing.T) {
	r := newRig(t, server.WithStrictness(server.Strictness{Types: []string{"email.*", "a"},
		UnknownAttributes: true, Meta: true}))
	refused := func(body, field string) {
		t.Helper()
		r.want("F174", r.do("POST /jobs\n\n"+body), 422, "error.code", "unsupported",
			"error.details.field", field)
	}
	refused(`{"type":"b","args":[]}`, "type")
	refused(`{"type":"a","args":[],"colour":"red"}`, "colour")
	refused(`{"type":"a","args":[],"options":{"colour":"red"}}`, "options.colour")
	refused(`{"type":"a","args":[],"meta":{"a b":1}}`, "meta")
	refused(`{"type":"a","args":[],"meta":{"a":"x\r\ny"}}`, "meta")
	r.want("F174", r.do("POST /jobs/batch\n\n"+`{"jobs":[{"type":"a","args":[]},{"type":"b","args":[]}]}`),
		422, "error.details.index", 1)
	r.want("F174", r.do("POST /jobs\n\n"+`{"type":"email.send","args":[{"colour":1}],"meta":{"x-1":"y"},
		"schema":"urn:x","tags":["t"],"options":{"priority":1,"scheduled_at":"+PT1S"}}`), 201)
	bad := server.WithStrictness(server.Strictness{Types: []string{"A b"}})
	if _, err := server.New(r.eng, bad); err == nil {
		t.Error("F174: a type that is none was taken")
	}
}

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// make makes a certificate, by itself if the authority has none.
func (a *authority) make(tmpl x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl.SerialNumber = big.NewInt(time.Now().UnixNano())
	if tmpl.NotAfter.IsZero() {
		tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = &tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &tmpl, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		a.cert, a.key = must(x509.ParseCertificate(der)), key
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A client certificate proves its holder, if the chain and the time are right. TLS 1.2
// and 1.3 are spoken (F190, F193).
func TestCertificates(t *testing.T) {
	ours := &authority{t: t}
	server0 := ours.make(x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, DNSNames: []string{"localhost"},
		Subject: pkix.Name{CommonName: "ca"}})
	foreign := &authority{t: t}
	foreign.make(x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "other ca"}})
	mock := clock.NewMock()
	mock.Set(time.Now())
	certs, err := server.NewCertificates(mock,
		server.Certificate{Name: "mailer", Holder: "cn:mailer",
			Grants: []server.Grant{{Role: server.RoleWorker, Queues: []string{"mail"}}}},
		server.Certificate{Name: "ops", Holder: "uri:spiffe://example.org/ops",
			Grants: []server.Grant{{Role: server.RoleAdmin}}})
	if err != nil {
		t.Fatal(err)
	}
	key, hash := server.NewKey()
	keys, err := server.NewKeys(mock, server.Key{Name: "k", Hash: hash,
		Grants: []server.Grant{{Role: server.RoleOperator}}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, server.WithAuthenticator(server.Authenticators{certs, keys}),
		server.WithHosts("localhost"))
	ts := httptest.NewUnstartedServer(r.srv)
	ts.Config = server.HTTPServer(r.srv)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.TLS = ts.Config.TLSConfig
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	ts.TLS.Certificates = []tls.Certificate{server0}
	ts.TLS.ClientCAs, ts.TLS.ClientAuth = pool, tls.VerifyClientCertIfGiven
	ts.StartTLS()
	t.Cleanup(ts.Close)
	ask := func(header, path string, conf *tls.Config) int {
		t.Helper()
		conf.RootCAs, conf.ServerName = pool, "localhost"
		tr := &http.Transport{TLSClientConfig: conf}
		defer tr.CloseIdleConnections()
		req := bindingtest.Request(path + header)
		req.RequestURI, req.URL.Scheme, req.URL.Host = "", "https", strings.TrimPrefix(ts.URL, "https://")
		req.Host = "localhost"
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	with := func(c tls.Certificate) *tls.Config {
		return &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &c, nil
		}}
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	mailer := ours.make(x509.Certificate{Subject: pkix.Name{CommonName: "mailer"}, ExtKeyUsage: usage})
	ops := ours.make(x509.Certificate{URIs: []*url.URL{must(url.Parse("spiffe://example.org/ops"))},
		ExtKeyUsage: usage})
	const fetch = "POST /workers/fetch"
	body := func(queue string) string { return "\n\n" + `{"queues":["` + queue + `"]}` }
	for _, c := range []struct {
		rule, header, path string
		conf               *tls.Config
		status             int
	}{
		{"F190: the common name", body("mail"), fetch, with(mailer), 200},
		{"F193: another queue", body("other"), fetch, with(mailer), 403},
		{"F190: an alternative name", "", "GET /admin/queues", with(ops), 200},
		{"F190: none", "", "GET /queues", &tls.Config{}, 401},
		{"F191: a key beside", "\nAuthorization: Bearer " + key, "GET /queues", &tls.Config{}, 200},
		{"F190: unknown", "", "GET /queues", with(ours.make(x509.Certificate{
			Subject: pkix.Name{CommonName: "nobody"}, ExtKeyUsage: usage})), 401},
		{"F190: of another authority", "", "GET /queues", with(foreign.make(x509.Certificate{
			Subject: pkix.Name{CommonName: "mailer"}, ExtKeyUsage: usage})), 0},
		{"F190: expired", "", "GET /queues", with(ours.make(x509.Certificate{
			Subject: pkix.Name{CommonName: "mailer"}, ExtKeyUsage: usage,
			NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})), 0},
		{"F190: TLS 1.1", "", "GET /queues", &tls.Config{MinVersion: tls.VersionTLS10,
			MaxVersion: tls.VersionTLS11}, 0},
		{"F190: TLS 1.2", "", "GET /health", &tls.Config{MaxVersion: tls.VersionTLS12}, 200},
		{"F190: no forward secrecy", "", "GET /health", &tls.Config{MaxVersion: tls.VersionTLS12,
			CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}}, 0},
		{"F190: TLS 1.3", "", "GET /health", &tls.Config{MinVersion: tls.VersionTLS13}, 200},
	} {
		if got := ask(c.header, c.path, c.conf); got != c.status {
			t.Errorf("%s: status %d, not %d", c.rule, got, c.status)
		}
	}
	mock.Add(2 * time.Hour)
	if got := ask("", "GET /admin/queues", with(ops)); got != 401 {
		t.Errorf("F190: a certificate that ends while its connection lives: %d", got)
	}
	for _, holder := range []string{"", "mailer", "cn:", "ip:1.2.3.4"} {
		if _, err := server.NewCertificates(nil, server.Certificate{Holder: holder}); err == nil {
			t.Errorf("F190: the holder %q was taken", holder)
		}
	}
}
