package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// settings are the values of flags that variables and a file give: a flag of the command
// line counts before a variable, and a variable before the file. The file has the names
// of the variables, so that systemd reads it as an EnvironmentFile.
type settings struct {
	env  func(string) string
	path string            // "": there is no file
	file map[string]string // by the names of variables
}

// secrets are variables without a flag: other users of the machine see the arguments of a
// process.
var secrets = []struct{ name, means string }{
	{"OJS_USER", "the name of the log-in of serve"},
	{"OJS_PASSWORD", "its password"},
	{"OJS_TOKEN", "a bearer token for serve, or the password of any user"},
	{"OJS_KEY", "the key for a server whose address --storage has"},
	{"OJS_KEY_FILE", "a file with that key"},
}

// readSettings reads the file of --config, of OJS_CONFIG, or ojs.env in the directory for
// configurations of the user, which need not exist.
func readSettings(env func(string) string, args []string) (*settings, error) {
	s := &settings{env: env, path: env("OJS_CONFIG")}
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if value, ok := strings.CutPrefix(arg, "--config="); ok {
			s.path = value
		} else if arg == "--config" && i+1 < len(args) {
			s.path = args[i+1]
		}
	}
	named := s.path != ""
	if !named {
		dir := env("XDG_CONFIG_HOME")
		if dir == "" && env("HOME") != "" {
			dir = filepath.Join(env("HOME"), ".config")
		}
		if dir == "" {
			return s, nil
		}
		s.path = filepath.Join(dir, "ojs.env")
	}
	text, err := os.ReadFile(s.path)
	if err != nil && !named {
		s.path = ""
		return s, nil
	}
	if err != nil {
		return s, usageError{fmt.Errorf("the file with settings: %w", err)}
	}
	s.file, err = readFile(s.path, string(text))
	return s, err
}

// readFile reads lines such as NAME=value. A value may be in quotes, and # begins a line
// that is a comment.
func readFile(path, text string) (map[string]string, error) {
	values := make(map[string]string)
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usageError{fmt.Errorf("%s:%d: a line is NAME=value", path, n)}
		}
		value = strings.TrimSpace(value)
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		if strings.HasPrefix(name, "OJS_") && !slices.Contains(settingNames(), name) {
			return nil, usageError{fixError{fmt.Errorf("%s:%d: there is no setting %s", path, n, name),
				"ojs config lists the settings"}}
		}
		values[name] = value
	}
	return values, lines.Err()
}

// settingNames are the variables that have a meaning.
func settingNames() []string {
	names := []string{"OJS_CONFIG"}
	for _, s := range secrets {
		names = append(names, s.name)
	}
	for flag := range settingFlags(kong.Must(new(verbs)).Model.Node) {
		names = append(names, settingOf(flag))
	}
	return names
}

// value is the value that a variable or the file gives, and where it is from.
func (s *settings) value(name string) (value, from string) {
	if value := s.env(name); value != "" {
		return value, "environment"
	}
	if value := s.file[name]; value != "" {
		return value, s.path
	}
	return "", ""
}

// get is the value of a variable, of the environment or the file.
func (s *settings) get(name string) string {
	value, _ := s.value(name)
	return value
}

// settingOf is the variable of a flag, "" if it has none.
func settingOf(flag *kong.Flag) string { return flag.Tag.Get("setting") }

// Validate implements kong.Resolver.
func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (s *settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	name := settingOf(flag)
	if name == "" {
		return nil, nil
	}
	if value := s.get(name); value != "" {
		return value, nil
	}
	return nil, nil
}

// helpOf is the help of a flag, with its variable.
func helpOf(v *kong.Value) string {
	if name := v.Tag.Get("setting"); name != "" {
		return strings.TrimSuffix(v.Help, ".") + " ($" + name + ")."
	}
	return v.Help
}
