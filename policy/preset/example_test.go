package preset_test

import (
	"fmt"
	"time"

	"github.com/ojsengine/ojs/policy"
	"github.com/ojsengine/ojs/policy/preset"
)

func ExampleSidekiq() {
	p := preset.Sidekiq()
	p.MaxAttempts = 1 + 5 // retry: 5
	fmt.Println(policy.Delays(p), p.OnExhaustion)
	// Output: [15s 16s 31s 1m36s 4m31s] dead_letter
}

func ExampleFullJitter() {
	p := preset.FullJitter()
	p.MaxAttempts, p.InitialInterval, p.MaxInterval = 1+5, time.Second, time.Minute
	for _, ceiling := range policy.Delays(p) {
		fmt.Print("0 to ", ceiling, "; ")
	}
	// Output: 0 to 1s; 0 to 2s; 0 to 4s; 0 to 8s; 0 to 16s;
}
