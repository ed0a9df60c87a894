package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/internal/test/crashtest"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage/postgres"
)

// ha is a cluster with an endpoint, and a shop behind the endpoint. The endpoint leads
// new connections to the primary, and keeps those to other servers.
type ha struct {
	*pgtest.Patroni
	t    *testing.T
	end  *endpoint
	held atomic.Bool // the endpoint stays where it is
	shop *shop
	jobs int
}

// follow moves the endpoint to the primary until ctx ends.
func (c *ha) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if i := c.Primary(); i >= 0 && !c.held.Load() {
			c.end.socket.Store(c.Socket(i))
		}
		crashtest.Wait(ctx, 100*time.Millisecond)
	}
}

// runs enqueues a job, again and again until that succeeds, and waits until the job runs.
func (c *ha) runs() {
	c.t.Helper()
	c.jobs++
	await(c.t, "an enqueue", func() bool {
		_, err := c.shop.Enqueue(c.t.Context(), "x", c.jobs)
		return err == nil
	})
	await(c.t, "its job", func() bool { return c.shop.has(c.jobs) })
}

// awaitNode waits until the cluster has a node of a kind, and returns its number.
func awaitNode(t *testing.T, cluster *pgtest.Patroni, kind string, which func() int) (i int) {
	t.Helper()
	must(t, cluster.Await(kind, func() bool {
		i = which()
		return i >= 0
	}))
	return i
}

func (c *ha) primary() int { return awaitNode(c.t, c.Patroni, "a primary", c.Primary) }

func (c *ha) synchronous() int {
	return awaitNode(c.t, c.Patroni, "a synchronous standby", c.Synchronous)
}

// another waits until a node other than i is the primary.
func (c *ha) another(i int) {
	c.t.Helper()
	must(c.t, c.Await("another primary", func() bool { n := c.Primary(); return n >= 0 && n != i }))
}

// commits waits until the primary commits, without the pool: each try opens a connection.
func (c *ha) commits() {
	c.t.Helper()
	await(c.t, "a commit", func() bool {
		i := c.Primary()
		if i < 0 {
			return false
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, c.NodeDSN(i))
		if err != nil {
			return false
		}
		defer conn.Close(context.WithoutCancel(ctx))
		_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS probe (); INSERT INTO probe DEFAULT VALUES")
		return err == nil
	})
}

// fault breaks a cluster.
type fault struct {
	name string

	// begin breaks the cluster, whose primary is node i, and returns once there is a
	// primary again. The function end repairs it.
	begin func(c *ha, i int) (end func())
}

var faults = []fault{
	{"a switch-over behind an endpoint that lags", func(c *ha, i int) func() {
		c.held.Store(true)
		must(c.t, c.SwitchOver(i))
		c.another(i)
		await(c.t, "connections to a standby", func() bool {
			_, err := c.shop.Enqueue(c.t.Context(), "x", -1)
			return errors.Is(err, postgres.ErrReadOnly)
		})
		c.held.Store(false)
		return func() {}
	}},
	{"kill -9 of the primary and its agent", func(c *ha, i int) func() {
		c.Kill(i)
		c.another(i)
		return func() { must(c.t, c.Up(i)) }
	}},
	{"a primary that stands still with its agent", func(c *ha, i int) func() {
		thaw := c.Freeze(i)
		c.another(i)
		return thaw
	}},
	{"kill -9 of the agent of the primary", func(c *ha, i int) func() {
		c.KillAgent(i)
		c.another(i)
		return func() {
			// As a watchdog does. An agent that starts beside a running server resets
			// synchronous_standby_names, and the waiting commits return.
			c.KillServer(i)
			must(c.t, c.Up(i))
		}
	}},
	{"kill -9 of the primary", func(c *ha, i int) func() {
		c.KillServer(i)
		return func() {}
	}},
	{"a synchronous standby that stands still with its agent", func(c *ha, i int) func() {
		return c.Freeze(c.synchronous())
	}},
	{"kill -9 of the synchronous standby and its agent", func(c *ha, i int) func() {
		n := c.synchronous()
		c.Kill(n)
		return func() { must(c.t, c.Up(n)) }
	}},
}

// networks makes a network namespace for each node, and an address of this machine that
// every node reaches. They are removed after the test.
func networks(t *testing.T) (host string, places [pgtest.Nodes]pgtest.Place) {
	t.Helper()
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", args, err, out)
		}
	}
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
	const common = "10.77.99.1"
	ip("addr add " + common + "/32 dev lo")
	t.Cleanup(func() { ip("addr del " + common + "/32 dev lo") })
	for i := range places {
		name, link := fmt.Sprint("ojs", i), linkOf(i)
		here, there := fmt.Sprintf("10.77.%d.1", i), fmt.Sprintf("10.77.%d.2", i)
		ip("netns add " + name)
		t.Cleanup(func() { ip("netns del " + name) })
		ip("link add " + link + " type veth peer name eth0 netns " + name)
		ip("addr add " + here + "/24 dev " + link)
		ip("link set " + link + " up")
		in := "-n " + name + " "
		ip(in + "link set lo up")
		ip(in + "addr add " + there + "/24 dev eth0")
		ip(in + "link set eth0 up")
		ip(in + "route add default via " + here)
		places[i] = pgtest.Place{Host: there, Root: true, Wrap: strings.Fields("ip netns exec " + name +
			" setpriv --reuid postgres --regid postgres --clear-groups")}
	}
	return common, places
}

func linkOf(i int) string { return fmt.Sprint("ojsnet", i) }

// cut takes the link of a node down. The function restore brings the link up again.
func cut(t *testing.T, i int) (restore func()) {
	set := func(state string) {
		out, err := exec.Command("ip", "link", "set", linkOf(i), state).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	set("down")
	return func() { set("up") }
}

// When the primary of a cluster moves, no acknowledged job is lost, and no job waits for
// its lease. OJS_PATRONI is the number of faults. They happen in the order of their list,
// which starts again after its end; OJS_PATRONI_ONLY, a regular expression, selects some
// by name. With OJS_PATRONI_NETS each node has a network of its own, and the fault is a
// primary that is cut off. With OJS_PATRONI_AHEAD=+30s the clock of a node is ahead.
// OJS_PATRONI_TTL is how long a silent primary stays the primary, such as 20s.
func TestPatroni(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("OJS_PATRONI"))
	if err != nil {
		t.Skip("it needs Patroni and a minute: set OJS_PATRONI to a number of faults, such as 3")
	}
	only, err := regexp.Compile(os.Getenv("OJS_PATRONI_ONLY"))
	must(t, err)
	list := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !only.MatchString(f.name) })
	ttl, err := time.ParseDuration(cmp.Or(os.Getenv("OJS_PATRONI_TTL"), "5s"))
	must(t, err)
	etcd, places := "127.0.0.1", pgtest.Local
	if os.Getenv("OJS_PATRONI_NETS") != "" {
		etcd, places = networks(t)
		list = []fault{{"a primary that is cut off", func(c *ha, i int) func() {
			restore := cut(t, i)
			c.another(i)
			return restore
		}}}
	}
	if len(list) == 0 {
		t.Fatalf("no fault is called %v", only)
	}
	if ahead := os.Getenv("OJS_PATRONI_AHEAD"); ahead != "" {
		libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
		if len(libs) == 0 {
			t.Fatal("install faketime")
		}
		places[1].Wrap = append(places[1].Wrap, "env", "LD_PRELOAD="+libs[0], "FAKETIME="+ahead,
			"FAKETIME_DONT_FAKE_MONOTONIC=1")
	}
	cluster, err := pgtest.StartPatroni(ttl, etcd, places)
	must(t, err)
	defer cluster.Close()
	c := &ha{Patroni: cluster, t: t}
	c.end = startEndpointAt(t, cluster.Socket(c.primary()))
	const patience = 2 * time.Second
	const room = " pool_max_conns=20" // pgxpool keeps the places of dead connections for 15 s
	pool := poolAt(t, c.end.dsn()+room, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.ConnectTimeout, cfg.PingTimeout = patience, patience
	})
	following, stop := context.WithCancel(t.Context())
	var ends sync.WaitGroup
	ends.Go(func() { c.follow(following) })
	defer ends.Wait()
	defer stop()
	c.shop = startShop(t, openAs(t, pool, "shop", postgres.WithPatience(patience),
		postgres.WithLogger(quietLog)))
	crashtest.Run(t, crashtest.Config{
		Open:   openForCrash,
		At:     fmt.Sprintf("ojs/%v %s|%s", patience, c.end.dsn()+room, c.DSN()+room),
		Direct: "ojs " + c.DSN(),
		Both:   3,
		Faults: n,
		Disturb: func(ctx context.Context) {
			for k := range n {
				must(t, c.Await("a complete cluster", c.Complete))
				c.runs()
				crashtest.Wait(ctx, time.Second)
				fault := list[k%len(list)]
				began := time.Now()
				end := fault.begin(c, c.primary())
				elected := time.Since(began).Round(time.Millisecond)
				var probe sync.WaitGroup
				probe.Go(func() {
					c.commits()
					t.Logf("a commit after %v", time.Since(began).Round(time.Millisecond))
				})
				c.runs()
				t.Logf("%s: %s: a primary after %v, a job has run after %v", began.Format("15:04:05.000"),
					fault.name, elected, time.Since(began).Round(time.Millisecond))
				probe.Wait()
				end()
			}
			must(t, c.Await("a complete cluster", c.Complete))
			c.runs()
		},
	})
}
