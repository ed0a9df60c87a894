package main

import (
	"fmt"
	"iter"
	"net/url"
	"strings"

	"github.com/alecthomas/kong"
)

type configVerb struct{}

func (configVerb) Help() string {
	return `A flag counts before its variable, and a variable before the file. The file is that of
--config or OJS_CONFIG, or ojs.env in $XDG_CONFIG_HOME or ~/.config. It has lines
NAME=value with the names of the variables. Passwords and tokens are not shown.`
}

// setting is a value in force.
type setting struct {
	Name  string `json:"name"`           // of the variable
	Flag  string `json:"flag,omitempty"` // "": it has none
	Value string `json:"value"`
	From  string `json:"from"`
}

// Run shows the settings, those of serve included.
func (configVerb) Run(c *call) error {
	path := c.settings.path
	if path == "" {
		path = "none"
	}
	list := []setting{{Name: "OJS_CONFIG", Flag: "--config", Value: path, From: c.fileFrom()}}
	for flag := range settingFlags(c.parser.Model.Node) {
		s := setting{Name: settingOf(flag), Flag: "--" + flag.Name, Value: flag.Default, From: "default"}
		if value, from := c.settings.value(s.Name); value != "" {
			s.Value, s.From = value, from
		}
		for _, path := range c.kong.Path {
			if path.Flag == flag && !path.Resolved {
				s.Value, s.From = fmt.Sprint(c.kong.FlagValue(flag)), "flag"
			}
		}
		if s.Name == "OJS_STORAGE" {
			s.Value = withoutSecrets(s.Value)
		}
		list = append(list, s)
	}
	for _, secret := range secrets {
		s := setting{Name: secret.name, From: "default"}
		if value, from := c.settings.value(s.Name); value != "" {
			s.Value, s.From = value, from
			if s.Name != "OJS_USER" && s.Name != "OJS_KEY_FILE" {
				s.Value = "(set)"
			}
		}
		list = append(list, s)
	}
	return show(c, listing[setting]{
		columns: []column{{title: "VARIABLE"}, {title: "FLAG", rank: 1}, {title: "VALUE", long: true},
			{title: "FROM", long: true}},
		row: func(s setting) []cell {
			return []cell{of(s.Name), of(s.Flag), of(s.Value), of(s.From)}
		},
		id: func(s setting) string { return s.Name },
	}, all(list), nil)
}

// fileFrom is where the name of the file with settings is from.
func (c *call) fileFrom() string {
	switch c.settings.path {
	case c.flags.Config:
		if c.flags.Config != "" {
			return "flag"
		}
	case c.env("OJS_CONFIG"):
		return "environment"
	}
	return "default"
}

// settingFlags yields the flags of all verbs that have a variable.
func settingFlags(node *kong.Node) iter.Seq[*kong.Flag] {
	return func(yield func(*kong.Flag) bool) {
		for flag := range allFlags(node) {
			if settingOf(flag) != "" && !yield(flag) {
				return
			}
		}
	}
}

// allFlags yields the flags of a node and of those below it.
func allFlags(node *kong.Node) iter.Seq[*kong.Flag] {
	return func(yield func(*kong.Flag) bool) {
		for _, flag := range node.Flags {
			if !yield(flag) {
				return
			}
		}
		for _, child := range node.Children {
			for flag := range allFlags(child) {
				if !yield(flag) {
					return
				}
			}
		}
	}
}

// withoutSecrets is an address whose password is hidden, in its user or its parameters.
func withoutSecrets(address string) string {
	if !strings.Contains(address, "://") {
		if _, _, err := addressOf(address, ""); err != nil && address != "" {
			return "… (no address)"
		}
		return address
	}
	u, err := url.Parse(address)
	if err != nil {
		scheme, _, _ := strings.Cut(address, "://")
		return scheme + "://… (no address)"
	}
	if strings.HasPrefix(u.Scheme, "http") && (u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return u.Scheme + "://… (no address)" // it may have a key
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		u.RawQuery = "… (no parameters)"
	}
	for name := range q {
		if err == nil && strings.Contains(name, "password") {
			q.Set(name, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return u.Redacted()
}
