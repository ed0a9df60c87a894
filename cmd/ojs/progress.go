package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress shows how many jobs a verb has done, if the standard error is a terminal.
type progress struct {
	*call
	live bool
	last time.Time
	part func() float64 // how much of all is done, from 0 to 1; nil: not known
}

func (c *call) progress() progress {
	_, live := terminal(c.errs)
	return progress{c, live, c.clock.Now(), nil}
}

// show writes the number over the one before, five times in a second at most.
func (p *progress) show(n int, did string) {
	if now := p.clock.Now(); p.live && now.Sub(p.last) > 200*time.Millisecond {
		p.last = now
		bar := ""
		if p.part != nil {
			part := min(1, max(0, p.part()))
			done := strings.Repeat("#", int(part*barWidth))
			bar = fmt.Sprintf("[%-*s] %3.0f %%  ", barWidth, done, part*100)
		}
		fmt.Fprintf(p.errs, "\r%s%s %s\x1b[K", bar, counted(n, "job"), did)
	}
}

// barWidth is that of the bar in columns.
const barWidth = 20

// clear removes the number.
func (p *progress) clear() {
	if p.live {
		fmt.Fprint(p.errs, "\r\x1b[K")
	}
}

// reads has the bar show how much of a file is read, if in is one. The reader that it
// returns reads in.
func (p *progress) reads(in, file io.Reader) io.Reader {
	f, ok := file.(*os.File)
	if !ok {
		return in
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return in
	}
	var n int64
	p.part = func() float64 { return float64(n) / float64(info.Size()) }
	return counting{in, &n}
}

// counting counts what is read.
type counting struct {
	io.Reader
	n *int64
}

func (c counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	*c.n += int64(n)
	return n, err
}
