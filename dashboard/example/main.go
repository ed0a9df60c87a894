// A shop with a page of its own and the dashboard beside it:
//
//	cd dashboard && go run ./example
//
// Then open http://localhost:8080/ and http://localhost:8080/admin/jobs/. Replace
// AllowAll by a check of the program's own users before others can reach it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/dashboard"
	"github.com/ojsengine/ojs/engine"
	"github.com/ojsengine/ojs/handler"
	"github.com/ojsengine/ojs/storage/memory"
)

// Receipt is the mail for an order.
type Receipt struct {
	Order int64  `json:"order"`
	To    string `json:"to"`
}

var sendReceipt = ojs.Define[Receipt]("receipt.send", ojs.WithQueue("mail"), ojs.WithMaxAttempts(4))

// send fails for every fifth order, so that there is something to look at.
func send(ctx context.Context, job *ojs.Job[Receipt]) error {
	if err := handler.Sleep(ctx, 200*time.Millisecond); err != nil {
		return err
	}
	if job.Args.Order%5 == 0 {
		return ojs.Errorf("smtp.timeout", "order %d: mail server does not answer", job.Args.Order)
	}
	return nil
}

func run(ctx context.Context) error {
	eng, err := engine.New[any](memory.New())
	if err != nil {
		return err
	}
	eng.Register(handler.For(sendReceipt, send))
	pages, err := dashboard.New(eng, dashboard.WithTitle("Shop jobs"),
		dashboard.WithEnvironment("development"), dashboard.WithAuthorizer(dashboard.AllowAll))
	if err != nil {
		return err
	}

	var orders atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<!doctype html><title>Shop</title><form method="post"><button>Order</button></form>`+
			`<a href="admin/jobs/">Jobs</a>`)
	})
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		receipt := Receipt{orders.Add(1), "ada@example.com"}
		if _, err := sendReceipt.Enqueue(r.Context(), eng, receipt); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
	mux.Handle("/admin/jobs/", http.StripPrefix("/admin/jobs", pages))

	own := func(w http.ResponseWriter, r *http.Request) {
		if host, _, _ := net.SplitHostPort(r.Host); host != "localhost" { // or another site may act
			http.Error(w, "open it as http://localhost:8080/", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}
	server := &http.Server{Addr: "localhost:8080", Handler: http.HandlerFunc(own),
		ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		err := pages.Close() // ends streams, which Shutdown would wait for
		stopped <- errors.Join(err, server.Shutdown(context.WithoutCancel(ctx)))
	})
	go func() {
		if err := eng.Run(ctx); err != nil {
			log.Print(err)
		}
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
