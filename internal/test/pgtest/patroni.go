package pgtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ojsengine/ojs/internal/test/etcdtest"
	"github.com/ojsengine/ojs/internal/test/memdir"
)

// Nodes is how many nodes a cluster has.
const Nodes = 3

// ErrNoPatroni says that the machine has no Patroni.
var ErrNoPatroni = errors.New("pgtest: patroni is not installed: apt-get install patroni python3-etcd etcd-server")

// Patroni is a cluster of three servers with an agent each, which elect the primary by
// etcd. One of the others is its synchronous standby.
type Patroni struct {
	dir   string
	nodes [Nodes]*node
	etcd  *etcdtest.Cluster
	http  http.Client
}

// node is a server and its agent.
type node struct {
	Server // without a process: the agent starts it
	Place
	name  string
	port  int
	api   string    // the address of the agent
	agent *exec.Cmd // nil: it does not run
}

// Place is where a node runs.
type Place struct {
	Host string   // its address
	Wrap []string // is before the command line of the agent, whose process it becomes: env, say
	Root bool     // Wrap is run by root, and runs the agent as the user that it is to be
}

// Local has all nodes run as processes of this machine.
var Local = [Nodes]Place{{Host: localhost}, {Host: localhost}, {Host: localhost}}

const localhost = "127.0.0.1"

// StartPatroni makes a cluster and waits until it is complete. If the primary is silent
// for ttl, 5 s at least, another takes its place. The nodes find etcd by its host.
func StartPatroni(ttl time.Duration, etcd string, places [Nodes]Place) (*Patroni, error) {
	if _, err := exec.LookPath("patroni"); err != nil {
		return nil, ErrNoPatroni
	}
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	p := &Patroni{http: http.Client{Timeout: time.Second}}
	if p.etcd, err = etcdtest.StartAt(etcd); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp(memdir.Dir(), "patroni"); err == nil {
		err = p.start(bin, ttl, places)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Patroni) start(bin string, ttl time.Duration, places [Nodes]Place) error {
	if err := os.Chmod(p.dir, 0o755); err != nil { // for the account of the servers
		return err
	}
	ports, err := freePorts(2 * Nodes)
	if err != nil {
		return err
	}
	for i := range p.nodes {
		at := places[i]
		n := &node{Place: at, name: fmt.Sprint("n", i), port: ports[2*i]}
		n.api = fmt.Sprint(at.Host, ":", ports[2*i+1])
		n.bin, n.dir = bin, filepath.Join(p.dir, n.name)
		p.nodes[i] = n
		if err := os.Mkdir(n.dir, 0o700); err != nil {
			return err
		}
		if err := n.own(); err != nil {
			return err
		}
		text, err := json.Marshal(p.config(n, int(ttl.Seconds())))
		if err != nil {
			return err
		}
		if err := os.WriteFile(n.config(), text, 0o644); err != nil {
			return err
		}
		if err := p.Up(i); err != nil {
			return err
		}
	}
	return p.Await("the cluster is complete", p.Complete)
}

// freePorts returns ports on which nothing listens now.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (n *node) config() string { return filepath.Join(n.dir, "patroni.json") }

// object is one of JSON, which is YAML, too.
type object map[string]any

// config is that of an agent.
func (p *Patroni) config(n *node, ttl int) object {
	var etcd []string
	for _, url := range p.etcd.Endpoints() {
		etcd = append(etcd, strings.TrimPrefix(url, "http://"))
	}
	server := fmt.Sprint(n.Host, ":", n.port)
	trusted := []string{"local all all trust", "host all all all trust", "host replication all all trust"}
	return object{
		"scope": filepath.Base(p.dir), "name": n.name,
		"restapi": object{"listen": n.api, "connect_address": n.api},
		"etcd3":   object{"hosts": etcd}, // its API of version 2 is gone from etcd 3.6
		"bootstrap": object{
			"dcs": object{"ttl": ttl, "loop_wait": 1, "retry_timeout": (ttl - 1) / 2,
				"synchronous_mode": true, "postgresql": object{"use_pg_rewind": true}},
			"initdb": []any{object{"encoding": "UTF8"}, object{"locale": "C"}, "no-sync"},
		},
		"postgresql": object{
			"listen": server, "connect_address": server, "data_dir": n.data(), "bin_dir": n.bin,
			"pgpass": filepath.Join(n.dir, "pgpass"), "use_unix_socket": true, "pg_hba": trusted,
			"authentication": object{"superuser": object{"username": "postgres"},
				"replication": object{"username": "postgres"}},
			"parameters": object{"unix_socket_directories": n.dir, "fsync": "off", "shared_buffers": "32MB"},
		},
	}
}

// Up starts an agent that does not run, which starts the server.
func (p *Patroni) Up(i int) error {
	n := p.nodes[i]
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	line := append(slices.Clone(n.Wrap), "patroni", n.config())
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if !n.Root {
		cmd.SysProcAttr.Credential = n.as
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	n.agent = cmd
	return nil
}

func (n *node) log() string { return filepath.Join(n.dir, "log") }

// Socket is the path of the socket on which the server of a node listens.
func (p *Patroni) Socket(i int) string {
	return filepath.Join(p.nodes[i].dir, fmt.Sprint(".s.PGSQL.", p.nodes[i].port))
}

// NodeDSN is how to connect to a node, by its socket.
func (p *Patroni) NodeDSN(i int) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", p.nodes[i].dir, p.nodes[i].port)
}

// DSN is how to connect to the primary by the addresses of all nodes.
func (p *Patroni) DSN() string {
	var hosts, ports []string
	for _, n := range p.nodes {
		hosts, ports = append(hosts, n.Host), append(ports, strconv.Itoa(n.port))
	}
	return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable target_session_attrs=read-write",
		strings.Join(hosts, ","), strings.Join(ports, ","))
}

// Primary is the node that says that it is the primary, or -1.
func (p *Patroni) Primary() int {
	answers := make(chan int, Nodes)
	for i, n := range p.nodes {
		go func() { // others may stand still
			answer, err := p.http.Get("http://" + n.api + "/primary")
			if err != nil {
				answers <- -1
				return
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				i = -1
			}
			answers <- i
		}()
	}
	for range p.nodes {
		if i := <-answers; i >= 0 {
			return i
		}
	}
	return -1
}

// member is a node as the cluster sees it.
type member struct {
	Name, Role, State string
	Timeline          int
}

// members are the nodes as the primary sees them, none if there is no primary.
func (p *Patroni) members() []member {
	i := p.Primary()
	if i < 0 {
		return nil
	}
	answer, err := p.http.Get("http://" + p.nodes[i].api + "/cluster")
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	var cluster struct{ Members []member }
	_ = json.NewDecoder(answer.Body).Decode(&cluster) // none, if it fails
	return cluster.Members
}

// Complete reports whether there is a primary, and all other nodes follow it.
func (p *Patroni) Complete() bool {
	members := p.members()
	for _, m := range members {
		if m.State != "running" && m.State != "streaming" || m.Timeline != members[0].Timeline {
			return false
		}
	}
	return len(members) == Nodes && p.Synchronous() >= 0
}

// Synchronous is the node that is the synchronous standby, or -1.
func (p *Patroni) Synchronous() int {
	for _, m := range p.members() {
		if m.Role == "sync_standby" {
			return slices.IndexFunc(p.nodes[:], func(n *node) bool { return n.name == m.Name })
		}
	}
	return -1
}

// Await waits for a condition, two minutes at most.
func (p *Patroni) Await(what string, is func() bool) error {
	for until := wall.Now().Add(2 * time.Minute); !is(); wall.Sleep(50 * time.Millisecond) {
		if wall.Now().After(until) {
			var logs []byte
			for _, n := range p.nodes {
				text, _ := os.ReadFile(n.log())
				logs = append(append(logs, n.name...), text[max(0, len(text)-4000):]...)
			}
			return fmt.Errorf("pgtest: %s: not in two minutes\n%+v\n%s", what, p.members(), logs)
		}
	}
	return nil
}

// SwitchOver has the synchronous standby take the place of the primary, which is node i.
// It repeats what an agent refuses, such as while it knows of no standby that has caught
// up.
func (p *Patroni) SwitchOver(i int) error {
	n := p.nodes[i]
	body, err := json.Marshal(object{"leader": n.name})
	if err != nil {
		return err
	}
	patient := http.Client{Timeout: time.Minute}
	return p.Await("a switch-over", func() bool {
		answer, err := patient.Post("http://"+n.api+"/switchover", "application/json", bytes.NewReader(body))
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// server returns the processes of the server of a node, its postmaster first.
func (n *node) server() (pids []int) {
	text, _ := os.ReadFile(filepath.Join(n.data(), "postmaster.pid"))
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return nil
	}
	if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", postmaster)); !bytes.Contains(command,
		[]byte(n.dir)) {
		return nil // it has ended, and left its file
	}
	pids = append(pids, postmaster)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", postmaster))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// PIDs are the processes of a node: its agent, its server, and what serves connections.
func (p *Patroni) PIDs(i int) (pids []int) {
	if a := p.nodes[i].agent; a != nil {
		pids = append(pids, a.Process.Pid)
	}
	return append(pids, p.nodes[i].server()...)
}

// Kill ends the server of a node and its agent at once, as kill -9 does.
func (p *Patroni) Kill(i int) {
	p.KillAgent(i)
	p.KillServer(i)
}

// KillServer ends the server of a node, which its agent may start again.
func (p *Patroni) KillServer(i int) {
	if pids := p.nodes[i].server(); len(pids) > 0 {
		_ = syscall.Kill(pids[0], syscall.SIGKILL) // the others find out
	}
}

// KillAgent ends the agent of a node and leaves the server alone.
func (p *Patroni) KillAgent(i int) {
	if a := p.nodes[i].agent; a != nil {
		_ = a.Process.Kill()
		_ = a.Wait()
		p.nodes[i].agent = nil
	}
}

// Freeze stops all processes of a node until the function that it returns is called: as
// a machine that hangs it closes no connection.
func (p *Patroni) Freeze(i int) (thaw func()) {
	frozen := p.PIDs(i)
	for _, pid := range frozen {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return func() {
		for _, pid := range frozen {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// Close ends the cluster and removes it.
func (p *Patroni) Close() error {
	for i, n := range p.nodes {
		if n == nil {
			continue
		}
		pids := n.server() // which may stand still
		p.KillAgent(i)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	p.etcd.Close()
	return os.RemoveAll(p.dir)
}
