// Command ojs shows the jobs of a storage.
//
//	ojs serve -storage jobs.db
//	OJS_STORAGE=postgres://user@host/db ojs serve
//
// docs/dashboard.md describes it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

const usage = `ojs shows the jobs of a storage.

  ojs serve     serve the dashboard of a storage
  ojs version   print the version

ojs serve -h lists the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run does what the arguments say, and returns the exit code: 0 done, 1 failed, 2 wrong
// arguments.
func run(ctx context.Context, args []string, env func(string) string, out, errs io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(errs, usage)
		return 2
	}
	switch args[0] {
	case "serve":
		err := serve(ctx, args[1:], env, out, errs)
		var wrong usageError
		switch {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case errors.As(err, &wrong):
			fmt.Fprintln(errs, "ojs:", err)
			return 2
		case err != nil:
			fmt.Fprintln(errs, "ojs:", err)
			return 1
		}
		return 0
	case "version":
		version := "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			version = info.Main.Version
		}
		fmt.Fprintln(out, "ojs", version)
		return 0
	case "help", "-h", "-help", "--help":
		fmt.Fprint(out, usage)
		return 0
	}
	fmt.Fprintf(errs, "ojs: %q is no command: use serve or version\n", args[0])
	return 2
}

// usageError is an error of the arguments.
type usageError struct{ error }
