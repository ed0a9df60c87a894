// Package etcdtest runs a cluster of three etcd members on this machine, for tests, from
// the binary of the machine.
package etcdtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/internal/test/memdir"
)

// Members is how many members a cluster has.
const Members = 3

// Cluster is a cluster whose members run, unless they are stopped.
type Cluster struct {
	dir     string
	args    []string
	clients []string // URLs
	peers   []string
	cmds    [Members]*exec.Cmd // nil: it does not run
}

// wall is the clock on the wall, for members that do not come up.
var wall = clock.New()

// Main gives the tests of a package a cluster and runs them. They ask for it by OJS_ETCD,
// which has to be set: a cluster needs more of a machine than other tests do. Without it
// the tests run with a nil cluster, and skip. args are those of the members.
func Main(m *testing.M, cluster **Cluster, args ...string) int {
	if os.Getenv("OJS_ETCD") == "" {
		return m.Run()
	}
	c, err := Start(args...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	*cluster = c
	return m.Run()
}

// Start makes a cluster and waits until its members answer.
func Start(args ...string) (*Cluster, error) { return StartAt("127.0.0.1", args...) }

// StartAt is Start at another address of this machine.
func StartAt(host string, args ...string) (*Cluster, error) {
	dir, err := os.MkdirTemp(memdir.Dir(), "etcdtest")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, args: args}
	addresses, err := freeAddresses(host, 2*Members)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.clients, c.peers = addresses[:Members], addresses[Members:]
	for i := range Members {
		if err := c.Up(i); err != nil {
			c.Close()
			return nil, err
		}
	}
	for i := range Members {
		if err := c.answers(i); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// freeAddresses returns URLs on which nothing listens now.
func freeAddresses(host string, n int) (urls []string, err error) {
	for range n {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		urls = append(urls, "http://"+l.Addr().String())
	}
	return urls, nil
}

// Endpoints are the addresses for clients.
func (c *Cluster) Endpoints() []string { return c.clients }

// Up starts a member that does not run. It goes on with the data that it has.
func (c *Cluster) Up(i int) error {
	var all []string
	for k, url := range c.peers {
		all = append(all, fmt.Sprintf("n%d=%s", k, url))
	}
	name := fmt.Sprintf("n%d", i)
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("etcd", append([]string{
		"--name", name, "--data-dir", filepath.Join(c.dir, name),
		"--listen-client-urls", c.clients[i], "--advertise-client-urls", c.clients[i],
		"--listen-peer-urls", c.peers[i], "--initial-advertise-peer-urls", c.peers[i],
		"--initial-cluster", strings.Join(all, ","), "--initial-cluster-token", filepath.Base(c.dir),
	}, c.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("etcdtest: %w: install etcd, such as by apt-get install etcd-server", err)
	}
	c.cmds[i] = cmd
	return nil
}

// answers waits until a member takes connections.
func (c *Cluster) answers(i int) error {
	for until := wall.Now().Add(30 * time.Second); ; wall.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.clients[i], "http://"))
		if err == nil {
			return conn.Close()
		}
		if wall.Now().After(until) {
			log, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("n%d.log", i)))
			return fmt.Errorf("etcdtest: member %d does not answer: %w\n%s", i, err, log)
		}
	}
}

// Kill ends a member at once, as kill -9 does.
func (c *Cluster) Kill(i int) {
	if cmd := c.cmds[i]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		c.cmds[i] = nil
	}
}

// Close ends all members and removes their data.
func (c *Cluster) Close() {
	for i := range Members {
		c.Kill(i)
	}
	_ = os.RemoveAll(c.dir)
}
