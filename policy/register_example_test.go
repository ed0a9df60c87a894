package policy_test

import (
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

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
