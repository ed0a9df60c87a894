package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file that is no text is mended while the program waits.
func TestMended(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.txt", "one two three")
	write(t, dir, "b.txt", "\xff")
	write(t, dir, "c.txt", "four\nfive\n")
	enter, in := io.Pipe()
	out, printed := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(t.Context(), dir, enter, printed)
		ended <- err
		printed.Close()
	}()
	var got []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		got = append(got, lines.Text())
		if strings.HasPrefix(lines.Text(), "Mend") {
			write(t, dir, "b.txt", "six")
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := "find/b.txt: is no text|Mend this and press Enter.|     3 a.txt|     1 b.txt|     2 c.txt|     6 words"
	if strings.Join(got, "|") != want {
		t.Errorf("printed\n%s\nwant\n%s", strings.Join(got, "|"), want)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestGivenUp(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.txt", "\xff")
	var out strings.Builder
	err := run(t.Context(), dir, strings.NewReader(""), &out)
	if err == nil || !strings.Contains(out.String(), "is no text") {
		t.Errorf("%v, printed %q", err, out.String())
	}
}

// A directory without text files has no words.
func TestEmptyDirectory(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), t.TempDir(), strings.NewReader(""), &out)
	if err != nil || out.String() != "     0 words\n" {
		t.Errorf("%v, printed %q", err, out.String())
	}
}
