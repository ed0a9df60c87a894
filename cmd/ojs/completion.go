package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

type completionVerb struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionVerb) Help() string {
	return `bash: source <(ojs completion bash)
zsh: source <(ojs completion zsh)
fish: ojs completion fish | source`
}

// Run prints the completion of a shell.
func (v *completionVerb) Run(c *call) error {
	if v.Shell == "fish" {
		return fishCompletion(c)
	}
	follow, offer := c.completions()
	script := map[string]string{"bash": bashScript, "zsh": zshScript}[v.Shell]
	_, err := fmt.Fprintf(c.out, script, follow, offer)
	return err
}

// verbNodes are the verbs below a node, with their paths: " queues pause".
func verbNodes(node *kong.Node, path string, each func(path string, node *kong.Node)) {
	each(path, node)
	for _, child := range node.Children {
		if child.Type == kong.CommandNode {
			verbNodes(child, path+" "+child.Name, each)
		}
	}
}

// completions are the cases of two case statements: the first follows the words of the
// line to a verb, the second has what may come next.
func (c *call) completions() (follow, offers string) {
	var verbs, words strings.Builder
	verbNodes(c.parser.Model.Node, "", func(path string, node *kong.Node) {
		if path != "" {
			fmt.Fprintf(&verbs, "\t\t%q) verb=%q;;\n", path, path)
		}
		var offer []string
		for _, child := range node.Children {
			offer = append(offer, child.Name)
		}
		for _, flags := range node.AllFlags(true) {
			for _, flag := range flags {
				offer = append(offer, "--"+flag.Name)
			}
		}
		if node.Name == "jobs" {
			for _, state := range []string{"scheduled", "available", "pending", "active", "retryable",
				"completed",
				"cancelled", "discarded"} {
				offer = append(offer, "state:"+state)
			}
		}
		fmt.Fprintf(&words, "\t%q) offer=%q;;\n", path, strings.Join(offer, " "))
	})
	return verbs.String(), words.String()
}

const bashScript = `_ojs() {
	local verb="" offer="" word line="${COMP_LINE:0:COMP_POINT}"
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$verb $word" in
%s		esac
	done
	case "$verb" in
%s	esac
	line="${line##* }"
	COMPREPLY=($(compgen -W "$offer" -- "$line"))
	if [[ $COMP_WORDBREAKS == *:* && $line == *:* ]]; then
		COMPREPLY=("${COMPREPLY[@]#"${line%%:*}:"}") # bash completes what is behind the colon
	fi
}
complete -o default -F _ojs ojs
`

const zshScript = `#compdef ojs
_ojs() {
	local verb="" offer="" word
	for word in "${(@)words[2,CURRENT-1]}"; do
		case "$verb $word" in
%s		esac
	done
	case "$verb" in
%s	esac
	compadd -- ${=offer} || _files
}
if [[ $funcstack[1] == _ojs ]]; then
	_ojs "$@"
else
	compdef _ojs ojs
fi
`

func fishCompletion(c *call) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(c.out, format+"\n", args...)
		}
	}
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `\'`) + "'" }
	verbNodes(c.parser.Model.Node, "", func(path string, node *kong.Node) {
		if path != "" {
			names := strings.Fields(path)
			when := "__fish_use_subcommand"
			if len(names) > 1 {
				when = "__fish_seen_subcommand_from " + names[0]
			}
			line("complete -c ojs -n %s -f -a %s -d %s", quote(when), node.Name, quote(node.Help))
		}
		for _, flag := range node.Flags {
			when := "true"
			if path != "" {
				when = "__fish_seen_subcommand_from " + node.Name
			}
			line("complete -c ojs -n %s -l %s -d %s", quote(when), flag.Name, quote(flag.Help))
		}
	})
	return err
}
