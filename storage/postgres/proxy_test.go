package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// badNetwork is a proxy before a server, which loses connections, delays what is said and
// closes one direction, at random. On demand it swallows everything.
type badNetwork struct {
	network, address string // of the server
	listener         *net.TCPListener
	good             atomic.Bool
	holes            atomic.Int64 // how often a black hole has begun or ended: odd while there is one
	done             context.Context
	stop             func() // ends done, and all connections
	ends             sync.WaitGroup

	dropped, halved atomic.Int64
}

// startBadNetwork makes a proxy, which the end of the test ends.
func startBadNetwork(t *testing.T, server string) *badNetwork {
	t.Helper()
	cfg, err := pgconn.ParseConfig(server)
	must(t, err)
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	done, stop := context.WithCancel(context.Background())
	p := &badNetwork{listener: listener, done: done, stop: stop}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.ends.Go(p.accept)
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		p.ends.Wait()
	})
	return p
}

func (p *badNetwork) dsn() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable",
		p.listener.Addr().(*net.TCPAddr).Port)
}

// swallow begins a black hole: connections stay open, new ones are accepted, and no data
// passes. When the black hole has ended, its connections stay dead, as if a router on the
// way had forgotten them.
func (p *badNetwork) swallow() { p.holes.Add(1) }

// spit ends a black hole.
func (p *badNetwork) spit() { p.holes.Add(1) }

func (p *badNetwork) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return
		}
		p.ends.Go(func() { p.connect(client) })
	}
}

// stream is one end of a connection, of TCP or of a Unix socket.
type stream interface {
	net.Conn
	CloseWrite() error
}

func (p *badNetwork) connect(client *net.TCPConn) {
	defer client.Close()
	born := p.holes.Load()
	dead := func() bool { return born%2 == 1 || p.holes.Load() != born }
	conn, err := net.Dial(p.network, p.address)
	if err != nil {
		return
	}
	server := conn.(stream)
	defer server.Close()
	drop := func() {
		_ = client.SetLinger(0) // a reset
		_ = client.Close()
		_ = server.Close()
	}
	defer context.AfterFunc(p.done, drop)()
	var both sync.WaitGroup
	both.Go(func() { p.pass(client, server, dead, drop) })
	both.Go(func() { p.pass(server, client, dead, drop) })
	both.Wait()
}

// pass passes on what one end says to the other, more or less.
func (p *badNetwork) pass(from, to stream, dead func() bool, drop func()) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			_ = to.CloseWrite()
			return
		}
		if dead() {
			continue
		}
		said := buffer[:n]
		trouble := rand.IntN(1000)
		if p.good.Load() {
			trouble = -1
		}
		switch {
		case trouble < 0:
		case trouble < 4: // some of it arrives, or nothing, or all but no answer to it
			_, _ = to.Write(said[:rand.IntN(n+1)])
			p.dropped.Add(1)
			drop()
			return
		case trouble < 6: // this end seems to have nothing more to say
			_, _ = to.Write(said[:rand.IntN(n+1)])
			p.halved.Add(1)
			_ = to.CloseWrite()
			return
		case trouble < 50:
			p.pause(10 * time.Millisecond)
		case trouble < 55: // longer than a lease
			p.pause(time.Second)
		}
		if _, err := to.Write(said); err != nil {
			drop()
			return
		}
	}
}

func (p *badNetwork) pause(most time.Duration) {
	select {
	case <-time.After(rand.N(most)):
	case <-p.done.Done():
	}
}
