package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ojsengine/ojs/inspect"
)

// selection is the arguments of a verb that name jobs: ids, or the terms of a filter.
type selection struct {
	Jobs []string `arg:"" optional:"" name:"job" help:"Ids, - for ids from the standard input, or terms of a filter such as state:discarded."`
}

// filter reads the arguments. byID says that they name each job.
func (s *selection) filter(c *call) (f inspect.Filter, byID bool, err error) {
	ids, terms := 0, 0
	for _, arg := range s.Jobs {
		if strings.Contains(arg, ":") {
			terms++
		} else {
			ids++
		}
	}
	switch {
	case ids > 0 && terms > 0:
		return f, false, usageError{errors.New("ids and a filter are given: give one of them")}
	case terms > 0:
		f, err = inspect.Parse(filterLine(s.Jobs), c.now())
		return f, false, err
	}
	for _, id := range s.Jobs {
		if id != "-" {
			f.IDs = append(f.IDs, id)
			continue
		}
		lines := bufio.NewScanner(c.input())
		for lines.Scan() {
			if id := strings.TrimSpace(lines.Text()); id != "" {
				f.IDs = append(f.IDs, id)
			}
		}
		if err := lines.Err(); err != nil {
			return f, false, err
		}
	}
	for _, id := range f.IDs {
		if strings.ContainsAny(id, "* \t") {
			return f, false, usageError{fixError{fmt.Errorf("%q is no id", clean(id)),
				"write id:PREFIX* for a filter"}}
		}
	}
	return f, true, nil
}

// filterLine joins arguments to a line of a filter. An argument may be a line. The shell
// has taken the quotes from a value with a space, such as error:"no route": an argument
// that is no line by itself has them again.
func filterLine(args []string) string {
	var terms []string
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, ":")
		if ok && strings.ContainsAny(value, " \t") && !strings.Contains(arg, `"`) {
			if _, err := inspect.Parse(arg, time.Time{}); err != nil {
				arg = key + `:"` + value + `"`
			}
		}
		terms = append(terms, arg)
	}
	return strings.Join(terms, " ")
}

// filterArgs are the terms of a filter.
type filterArgs struct {
	Terms []string `arg:"" optional:"" name:"term" help:"Terms of a filter, such as state:discarded type:email.* since:1h."`
}

func (a *filterArgs) filter(c *call) (inspect.Filter, error) {
	return inspect.Parse(filterLine(a.Terms), c.now())
}

// filterHelp lists the terms of a filter.
const filterHelp = `A filter has terms KEY:VALUE. A key that is repeated selects any of its values.

  state: queue: type: version: worker: cron: id: workflow: key: fingerprint:
  errortype:TYPE  error:TEXT  failure:KEY  tag:TAG  dead:true
  args:TEXT  args.PATH:VALUE  meta.PATH:VALUE  priority:1..5  attempt:2..
  since:1h  until:2026-11-27  finished.since:1h  due.until:+1h
  order:newest|finished|due|claim

A type that ends with * selects what begins so. Quote * for the shell.`

// stateOrder is the order in which a listing is most useful.
func stateOrder(f *inspect.Filter, terms []string) {
	for _, t := range terms {
		if strings.HasPrefix(t, "order:") {
			return
		}
	}
	if f.Order == inspect.OrderOldest {
		f.Order = inspect.OrderNewest
	}
	if len(f.States) == 0 {
		return
	}
	for _, s := range f.States {
		if !s.Terminal() {
			return
		}
	}
	f.Order = inspect.OrderFinished
}
