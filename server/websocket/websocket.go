// Package websocket opens WebSocket connections for server.WithWebSockets.
//
//	srv, err := server.New(eng, server.WithWebSockets(websocket.New()))
package websocket

import (
	"context"
	"net/http"

	"github.com/coder/websocket"

	"github.com/ojsengine/ojs/server"
)

// Upgrader upgrades requests.
type Upgrader struct{}

var _ server.WebSockets = Upgrader{}

// New makes an Upgrader.
func New() Upgrader { return Upgrader{} }

// Accept implements server.WebSockets. A message of a client has at most 32 KiB.
func (Upgrader) Accept(w http.ResponseWriter, r *http.Request, protocol string) (server.WebSocket, error) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{protocol}, InsecureSkipVerify: true, // the server has checked the origin
	})
	if err != nil {
		return nil, err
	}
	return connection{conn}, nil
}

// connection is a server.WebSocket.
type connection struct{ conn *websocket.Conn }

func (c connection) Read(ctx context.Context) ([]byte, error) {
	_, message, err := c.conn.Read(ctx)
	return message, err
}

func (c connection) Write(ctx context.Context, text []byte) error {
	return c.conn.Write(ctx, websocket.MessageText, text)
}

func (c connection) Ping(ctx context.Context) error { return c.conn.Ping(ctx) }

func (c connection) Close(code int, reason string) error {
	return c.conn.Close(websocket.StatusCode(code), reason)
}
