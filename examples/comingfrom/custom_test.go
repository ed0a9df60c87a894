package comingfrom_test

import (
	"fmt"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

func init() {
	policy.RegisterBackoff("acme:fibonacci", func(p ojs.RetryPolicy, n int, r float64) time.Duration {
		a, b := time.Duration(0), p.InitialInterval
		for range min(n, 90) {
			a, b = b, min(a+b, p.MaxInterval)
		}
		return a
	})
}

func Example_custom() {
	p := ojs.RetryPolicy{MaxAttempts: 8, BackoffStrategy: "acme:fibonacci"}
	fmt.Println(policy.Delays(p))
	// Output: [1s 1s 2s 3s 5s 8s 13s]
}
