package websocket_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	client "github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/enginetest"
	"github.com/ojsengine/ojs/server"
	"github.com/ojsengine/ojs/server/websocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A client follows a job over a connection, and a server that stops closes it (F129,
// F131).
func TestConnection(t *testing.T) {
	eng := enginetest.New[any](t,
		append(server.EngineOptions(), engine.WithLogger(slog.New(slog.DiscardHandler)))...)
	srv, err := server.New(eng, server.WithWebSockets(websocket.New()))
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	defer ts.Close()
	dial := func(header http.Header) (*client.Conn, *http.Response, error) {
		return client.Dial(t.Context(), strings.Replace(ts.URL, "http", "ws", 1)+"/ojs/v1/ws",
			&client.DialOptions{Subprotocols: []string{"ojs.v1"}, HTTPHeader: header})
	}
	if _, resp, err := dial(http.Header{"Origin": {"https://evil.example.org"}}); err == nil ||
		resp.StatusCode != http.StatusForbidden {
		t.Errorf("F132: another origin: %v", err)
	}
	conn, resp, err := dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if conn.Subprotocol() != "ojs.v1" || resp.Header.Get("OJS-Version") != "1.0" {
		t.Errorf("F131, F002: %q %v", conn.Subprotocol(), resp.Header)
	}
	ticket, err := eng.Enqueue(t.Context(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := func(rule string, typ, event string) {
		t.Helper()
		_, text, err := conn.Read(t.Context())
		var m struct{ Type, Event string }
		if err != nil || json.Unmarshal(text, &m) != nil || m.Type != typ || m.Event != event {
			t.Fatalf("%s: %v: %s", rule, err, text)
		}
	}
	err = conn.Write(t.Context(), client.MessageText,
		[]byte(`{"action":"subscribe","channel":"job:`+ticket.ID+`","event_types":["job.cancelled"]}`))
	if err != nil {
		t.Fatal(err)
	}
	want("F131", "subscribed", "")
	if err := eng.Jobs().Cancel(t.Context(), ticket.ID); err != nil {
		t.Fatal(err)
	}
	want("F131", "event", "job.cancelled")
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Close(t.Context()) }()
	want("F129", "event", "server.shutdown")
	if _, _, err := conn.Read(t.Context()); client.CloseStatus(err) != client.StatusGoingAway {
		t.Errorf("F129: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A message that is too large, or a client that goes, ends the connection.
func TestConnectionEnds(t *testing.T) {
	eng := enginetest.New[any](t,
		append(server.EngineOptions(), engine.WithLogger(slog.New(slog.DiscardHandler)))...)
	srv, err := server.New(eng, server.WithWebSockets(websocket.New()))
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	defer ts.Close()
	for _, end := range []func(*client.Conn){
		func(conn *client.Conn) {
			conn.Write(t.Context(), client.MessageText, make([]byte, 33<<10))
			if _, _, err := conn.Read(t.Context()); client.CloseStatus(err) != client.StatusMessageTooBig {
				t.Errorf("F194: %v", err)
			}
		},
		func(conn *client.Conn) {
			if err := conn.Close(client.StatusNormalClosure, ""); err != nil {
				t.Errorf("F131: %v", err)
			}
		},
		func(conn *client.Conn) { conn.CloseNow() },
	} {
		conn, _, err := client.Dial(t.Context(), strings.Replace(ts.URL, "http", "ws", 1)+"/ojs/v1/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		end(conn)
		conn.CloseNow()
	}
	if err := srv.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
