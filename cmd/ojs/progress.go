package main

import (
	"fmt"
	"time"
)

// progress shows how many jobs a verb has done, if the standard error is a terminal.
type progress struct {
	*call
	live bool
	last time.Time
}

func (c *call) progress() progress {
	_, live := terminal(c.errs)
	return progress{c, live, c.clock.Now()}
}

// show writes the number over the one before, five times in a second at most.
func (p *progress) show(n int, did string) {
	if now := p.clock.Now(); p.live && now.Sub(p.last) > 200*time.Millisecond {
		p.last = now
		fmt.Fprintf(p.errs, "\r%s %s", counted(n, "job"), did)
	}
}

// clear removes the number.
func (p *progress) clear() {
	if p.live {
		fmt.Fprint(p.errs, "\r\x1b[K")
	}
}
