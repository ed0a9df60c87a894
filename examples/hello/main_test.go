package main

import (
	"bytes"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README shows this program word for word, but for its package comment.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(source), "\n")
	if !strings.Contains(string(readme), "```go\n"+program+"```") {
		t.Error("README.md does not show main.go")
	}
}

func TestProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	log.SetOutput(&out)
	log.SetFlags(0)
	defer log.SetOutput(os.Stderr)
	main()
	if !regexp.MustCompile(`^hello, world\ncompleted\n`).MatchString(out.String()) {
		t.Errorf("printed %q", out.String())
	}
}
