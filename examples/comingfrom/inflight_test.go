package comingfrom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/handler"
)

// A scheduled job of the old system is moved here. Moving it twice stores it once.
func Example_inFlight() {
	ctx, eng := begin()
	deliver := ojs.Define[Email]("email.deliver")
	eng.Register(handler.For(deliver, func(_ context.Context, job *ojs.Job[Email]) error {
		fmt.Println("to", job.Args.To)
		return nil
	}))
	old := struct {
		ID      string
		Payload []byte
		At      time.Time
	}{"c0ffee", []byte(`{"to": "a@b.c", "user": 1}`), time.Now()}
	for range 2 {
		// for each scheduled task of the old system
		_, err := eng.Enqueue(ctx, "email.deliver", json.RawMessage(old.Payload),
			ojs.WithScheduledAt(old.At), ojs.WithIdempotencyKey("asynq:"+old.ID))
		check(err)
	}
	work(ctx, eng)
	// Output:
	// to a@b.c
}
