package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/internal/test/pgtest"
	"github.com/ojsengine/ojs/storage/postgres"
)

var server string

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &server)) }

func TestSignUp(t *testing.T) {
	if server == "" {
		t.Skip("no PostgreSQL server is installed, and OJS_TEST_POSTGRES names none")
	}
	ctx, stop := context.WithCancel(t.Context())
	name := fmt.Sprintf("signup%d", os.Getpid())
	cfg, err := pgxpool.ParseConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = name
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := pool.Exec(context.Background(), "DROP SCHEMA "+name+" CASCADE; DROP SCHEMA "+name+
			"_jobs CASCADE"); err != nil {
			t.Error(err)
		}
	}()
	sent := make(chan string, 10)
	s, closeStore, err := open(ctx, pool,
		func(_ context.Context, w Welcome) error { sent <- w.Email; return nil },
		postgres.WithSchema(name+"_jobs"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.jobs.Run(ctx) }()
	post := func(email string) int {
		r := httptest.NewRequest(http.MethodPost, "/signup",
			strings.NewReader(url.Values{"email": {email}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		s.signUp(w, r)
		return w.Code
	}
	if code := post("ada@example.org"); code != http.StatusCreated {
		t.Errorf("status %d", code)
	}
	if got := <-sent; got != "ada@example.org" {
		t.Errorf("welcomed %q", got)
	}
	if code := post("ada@example.org"); code != http.StatusConflict {
		t.Errorf("again: status %d", code)
	}
	jobs := 0
	for _, err := range s.jobs.Jobs().List(ctx, inspect.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		jobs++
	}
	if jobs != 1 {
		t.Errorf("%d jobs for one account", jobs)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := closeStore(); err != nil {
		t.Error(err)
	}
}
