// Command ojs looks at the jobs of a storage and changes them, from a terminal or a
// script. It opens the storage itself: no engine has to run.
//
//	export OJS_STORAGE=postgres://user@host/db
//	ojs stats
//	ojs jobs state:discarded since:1h
//	ojs retry state:discarded 'type:email.*' --yes
//
// docs/command.md has each verb with an example.
//
// kong parses the arguments: a verb is a struct, a flag is a field, and the module
// depends on nothing else. cobra needs a second library for variables and files.
//
// # Invariants
//
//  1. A verb writes what it was asked for to the standard output, and everything else to
//     the standard error.
//  2. The command never asks a question. A change of jobs by a filter needs --yes.
//  3. No output has a password or a token. No table has a control character of a job.
//  4. Exit codes are those of errors.go.
package main

//go:generate go test -run TestShare -update .

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/storage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	p := program{env: os.Getenv, in: os.Stdin, out: os.Stdout, errs: os.Stderr, clock: clock.New()}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// program is what surrounds a run of the command.
type program struct {
	env       func(string) string
	in        io.Reader
	out, errs io.Writer
	clock     clock.Clock
	storage   storage.Storage // of tests: what each address opens; nil: the storage of the address
	rand      *rand.Rand      // of tests, for ids; nil: that of engines
}

// run does what the arguments say, and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	var verbs verbs
	c := &call{program: p, ctx: ctx, flags: &verbs.flags}
	err := c.parse(&verbs, arguments(args))
	if err == nil && c.kong != nil {
		err = c.kong.Run(c)
	}
	if closed := c.close(); err == nil {
		err = closed
	}
	return c.report(err)
}

// arguments has "ojs help VERB" mean "ojs VERB --help".
func arguments(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(append([]string(nil), args[1:]...), "--help")
	}
	return args
}

// parse reads the arguments, the variables and the file into the verbs. If it has shown
// the help, there is no verb to run.
func (c *call) parse(v *verbs, args []string) error {
	settings, err := readSettings(c.env, args)
	if err != nil {
		return err
	}
	c.settings = settings
	helped := false
	out := c.out
	if len(args) == 0 {
		out, args = c.errs, []string{"--help"}
		defer func() { c.code = exitUsage }()
	}
	parser, err := kong.New(v, kong.Name("ojs"), kong.Description(description),
		kong.Writers(out, c.errs), kong.Exit(func(int) { helped = true }),
		kong.Resolvers(settings), kong.ValueFormatter(helpOf),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true,
			WrapUpperBound: 90}),
		kong.ExplicitGroups(groups))
	if err != nil {
		return err
	}
	c.parser = parser
	if err := oneDash(parser, args); err != nil {
		return err
	}
	parsed, err := parser.Parse(args)
	if helped {
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	c.kong = parsed
	c.style = c.styleOf(v)
	return nil
}

// oneDash refuses -storage, which would be the short flag -s.
func oneDash(parser *kong.Kong, args []string) error {
	long := make(map[string]bool)
	for flag := range allFlags(parser.Model.Node) {
		long["-"+flag.Name] = true
	}
	for _, arg := range args {
		if name, _, _ := strings.Cut(arg, "="); long[name] && len(name) > 2 {
			return usageError{fixError{fmt.Errorf("%s is no flag", name), "write -" + name}}
		}
	}
	return nil
}
