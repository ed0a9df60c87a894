package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/internal/test/pgtest"
)

var server string

// TestMain is the program itself, if it is started by a test.
func TestMain(m *testing.M) {
	if role := os.Getenv("SERVICE_ROLE"); role != "" {
		os.Args = []string{"service", role}
		main()
		return
	}
	os.Exit(pgtest.Main(m, &server))
}

// One program is deployed as a migration, a web process and a worker process.
func TestService(t *testing.T) {
	if server == "" {
		t.Skip("no PostgreSQL server is installed, and OJS_TEST_POSTGRES names none")
	}
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, server)
	must(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, "CREATE DATABASE service")
	must(t, err)
	defer func() {
		_, err := pool.Exec(context.WithoutCancel(ctx), "DROP DATABASE service WITH (FORCE)")
		must(t, err)
	}()
	cfg, err := pgxpool.ParseConfig(server)
	must(t, err)
	cfg.ConnConfig.Database = "service"
	jobs, err := pgxpool.NewWithConfig(ctx, cfg)
	must(t, err)
	defer jobs.Close()
	env := append(os.Environ(), "ADDR=127.0.0.1:0", "PGPASSWORD="+cfg.ConnConfig.Password,
		fmt.Sprintf("DATABASE_URL=host=%s port=%d user=%s dbname=service", cfg.ConnConfig.Host,
			cfg.ConnConfig.Port, cfg.ConnConfig.User))
	if out, err := role("migrate", env).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	web, worker := start(t, role("web", env)), start(t, role("worker", env))
	response, err := http.PostForm(web.url+"/orders", url.Values{"email": {"ada@example.org"}})
	must(t, err)
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("an order: %s", response.Status)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		var sent int
		must(t, jobs.QueryRow(ctx, "SELECT count(receipt) FROM orders").Scan(&sent))
		if sent == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no receipt was sent")
		}
	}
	for path, want := range map[string]string{
		web.url + "/livez": "", web.url + "/readyz": "", web.url + "/admin/jobs/": "Health: healthy",
		web.url + "/metrics":  `ojs_queue_depth{queue="default",state="completed"} 1`,
		worker.url + "/livez": "", worker.url + "/readyz": "",
		worker.url + "/metrics": `ojs_job_completed_total{queue="default",type="receipt.send"} 1`,
	} {
		for deadline := time.Now().Add(time.Minute); ; { // the count follows the commit of the receipt
			response, err := http.Get(path)
			must(t, err)
			body, err := io.ReadAll(response.Body)
			must(t, err)
			if response.StatusCode == http.StatusOK && strings.Contains(string(body), want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is %s: %s", path, response.Status, body)
			}
		}
	}
	if log := worker.stop(t); !strings.Contains(log, " to=ada@example.org") {
		t.Errorf("the worker logged %s", log)
	}
	web.stop(t)
}

// process is one that serves.
type process struct {
	*exec.Cmd
	url string
	log io.Reader
}

// role is the program in one of its roles.
func role(name string, env []string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(env[:len(env):len(env)], "SERVICE_ROLE="+name)
	return cmd
}

// start starts a process and waits until it listens.
func start(t *testing.T, cmd *exec.Cmd) *process {
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the process has ended: %s", line)
		}
		if _, address, ok := strings.Cut(line, "address="); ok {
			return &process{cmd, "http://" + strings.TrimSpace(address), lines}
		}
	}
}

// stop ends a process as a deployment does, and returns what it has logged.
func (p *process) stop(t *testing.T) string {
	must(t, p.Process.Signal(syscall.SIGTERM))
	log, _ := io.ReadAll(p.log)
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, log)
	}
	return string(log)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
