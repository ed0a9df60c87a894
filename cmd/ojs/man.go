package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

type manVerb struct{}

func (manVerb) Help() string { return "ojs man > ojs.1 && man ./ojs.1" }

// Run prints the manual page.
func (manVerb) Run(c *call) error {
	p := &roff{}
	p.line(".TH OJS 1 \"\" \"ojs\" \"User Commands\"")
	p.section("NAME", `ojs \- look at the jobs of a storage, and change them`)
	p.section("SYNOPSIS", `.B ojs`, `\fIVERB\fR [\fIFLAGS\fR] [\fIARGS\fR]`)
	p.section("DESCRIPTION")
	p.text("ojs opens the storage that --storage or OJS_STORAGE names, or calls the server at such an " +
		"address: no engine has to run. The command never asks a question.")
	app := c.parser.Model.Node
	p.section("GLOBAL FLAGS")
	p.flags(app.Flags)
	for _, group := range groups {
		if group.Key == "global" {
			continue
		}
		p.section(strings.ToUpper(strings.TrimSuffix(group.Title, ":")))
		for _, verb := range app.Children {
			if verb.Group != nil && verb.Group.Key == group.Key {
				verbNodes(verb, "", func(_ string, node *kong.Node) { p.verb(node) })
			}
		}
	}
	p.section("EXIT STATUS")
	for _, exit := range exitCodes {
		p.item(fmt.Sprint(exit.code), exit.means)
	}
	p.section("ENVIRONMENT")
	for flag := range settingFlags(app) {
		p.item(settingOf(flag), "as --"+flag.Name)
	}
	for _, s := range secrets {
		p.item(s.name, s.means)
	}
	p.item("NO_COLOR", "no colours, if it is set")
	p.item("COLUMNS", "the width of tables")
	p.section("FILES")
	p.item("~/.config/ojs.env", "settings, one NAME=value a line; --config or OJS_CONFIG names another file")
	_, err := fmt.Fprint(c.out, p.String())
	return err
}

// roff is a manual page.
type roff struct{ strings.Builder }

func (p *roff) line(text string) { p.WriteString(text + "\n") }

func (p *roff) section(title string, lines ...string) {
	p.line(".SH " + title)
	for _, line := range lines {
		p.line(line)
	}
}

// escaped is a text in ASCII without marks of roff.
func escaped(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case i == 0 && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r > 126:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// text writes paragraphs. Lines that begin with a space stay as they are.
func (p *roff) text(text string) {
	plain := false
	for line := range strings.SplitSeq(text, "\n") {
		if as := strings.HasPrefix(line, " "); line != "" && as != plain {
			plain = as
			p.line(map[bool]string{true: ".nf", false: ".fi"}[as])
		}
		if line == "" {
			p.line(".PP")
			continue
		}
		p.line(escaped(line))
	}
	if plain {
		p.line(".fi")
	}
}

func (p *roff) item(name, text string) {
	p.line(".TP\n.B " + escaped(name))
	p.line(escaped(text))
}

func (p *roff) flags(list []*kong.Flag) {
	for _, flag := range list {
		if flag.Name != "help" {
			p.item(strings.ReplaceAll(flag.String(), "=", " "), helpOf(flag.Value))
		}
	}
}

func (p *roff) verb(node *kong.Node) {
	args := ""
	for _, arg := range node.Positional {
		args += " " + arg.Summary()
	}
	p.line(".SS " + `"` + escaped(node.FullPath()+args) + `"`)
	p.text(node.Help)
	for _, arg := range node.Positional {
		p.item(arg.Name, arg.Help)
	}
	p.flags(node.Flags)
	if node.Detail != "" {
		p.line(".PP")
		p.text(node.Detail)
	}
}
