package policy_test

import (
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func ExampleSidekiq() {
	p := policy.Sidekiq()
	p.MaxAttempts = 1 + 5 // retry: 5
	fmt.Println(policy.Delays(p), p.OnExhaustion)
	// Output: [15s 16s 31s 1m36s 4m31s] dead_letter
}

func ExampleFullJitter() {
	p := policy.FullJitter()
	p.MaxAttempts, p.InitialInterval, p.MaxInterval = 1+5, time.Second, time.Minute
	for _, ceiling := range policy.Delays(p) {
		fmt.Print("0 to ", ceiling, "; ")
	}
	// Output: 0 to 1s; 0 to 2s; 0 to 4s; 0 to 8s; 0 to 16s;
}

func init() { // in a program, before it enqueues
	policy.RegisterBackoff("acme:office", func(p ojs.RetryPolicy, n int, r float64) time.Duration {
		return time.Duration(n)*p.InitialInterval + time.Duration(r*float64(time.Minute))
	})
}

func ExampleRegisterBackoff() {
	p := ojs.RetryPolicy{MaxAttempts: 4, InitialInterval: time.Hour, MaxInterval: 2 * time.Hour,
		Jitter: ojs.JitterOff, BackoffStrategy: "acme:office"}
	fmt.Println(policy.Delays(p), policy.Delay(p, 1, 0.5))
	// Output: [1h0m0s 2h0m0s 2h0m0s] 1h0m30s
}
