package words_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ojsengine/ojs/internal/test/words"
)

func TestPhrases(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string // "line words", for each finding
	}{
		{"The worker claims the next job.", nil},
		{"Whoever claims next stores them.", []string{`1 "Whoever"`}},
		{"A job ends.\nWhat it left\nis deleted.", []string{`2 "What"`}},
		{"What is a job?", nil},
		{"What a job is. What is a job?", []string{`1 "What"`}},
		{"It is stored; what is refused is not.", []string{`1 "; what"`}},
		{"Delays: those that are left out are zero. Those too.", []string{`1 "Those"`}},
		{"Jobs:\nOthers run\nmeanwhile.\n\nOne that waits is told.", []string{`2 "Others"`, `5 "One that"`}},
		{"One of three. One job that waits.", nil},
		{"no\nlonger", []string{"1 \"no longer\""}},
		{"It takes no longer than a second.", nil},
		{"It does not run any more. Are there any more jobs?", []string{`1 "any more."`}},
		{"what becomes of the duplicate", []string{`1 "becomes of"`}},
		{"The field `nobody` is not a word of the sentence.", nil},
		{"It ends (e.g. here). Somebody did it.", []string{`1 "Somebody"`}},
	} {
		var got, inGo []string
		for _, f := range words.Markdown("x.md", []byte(test.text)) {
			got = append(got, fmt.Sprint(f.Line, " ", f.What))
		}
		src := "// " + strings.ReplaceAll(test.text, "\n", "\n// ") + "\npackage p\n"
		found, err := words.Go("x.go", []byte(src))
		for _, f := range found {
			inGo = append(inGo, fmt.Sprint(f.Line, " ", f.What))
		}
		if !slices.Equal(got, test.want) || !slices.Equal(inGo, test.want) || err != nil {
			t.Errorf("%q: found %q in Markdown and %q in Go, want %q: %v", test.text, got, inGo,
				test.want, err)
		}
	}
}

func TestMarkdown(t *testing.T) {
	const text = "# What a heading asks\n" + // allowed: a question
		"# What becomes of it\n" +
		"- the first item\n" +
		"- What the second is\n" +
		"1. Who the third is\n" +
		"\n" +
		"| what | Nobody |\n" +
		"|---|---|\n" +
		"| a | Those of b |\n" +
		"```go\n" +
		"nobody() // What it returns\n" +
		"```\n" +
		"Others.\n"
	want := []int{2, 4, 5, 7, 9, 11, 13}
	var got []int
	for _, f := range words.Markdown("x.md", []byte(text)) {
		got = append(got, f.Line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("findings in lines %v, want %v", got, want)
	}
}

func TestGo(t *testing.T) {
	long := strings.Repeat(" long", 30)
	src := "package p\n" + // 1
		"//" + long + "\n" +
		"//" + strings.Repeat("x", 100) + "\n" + // one word, such as an address
		"//go:generate" + long + "\n" +
		"var a = 1 // What ends it" + long + "\n" + // 5
		"/* Nobody\n" +
		"knows. Those that do" + long + "\n" +
		"are silent. */\n" +
		"var b = \"for nobody\"\n" +
		"var c = \"nobody\" + `\n" + // 10
		long + "\n" +
		"Nobody`\n" +
		"var d = \"" + long + "\"\n" + // a text that people search for
		"func ExampleA() {\n" +
		"\t// Output:\n" +
		"\t// Nobody" + long + "\n" +
		"}\n"
	want := []string{"2 1", "5 0", "5 2", "6 0", "7 0", "7 1", "9 0"}
	for _, name := range []string{"x.go", "x_test.go"} {
		found, err := words.Go(name, []byte(src))
		var got []string
		for _, f := range found {
			got = append(got, fmt.Sprint(f.Line, " ", int(f.Rule)))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: found %q, want %q: %v", name, got, want, err)
		}
		want = slices.DeleteFunc(want, func(s string) bool { return s == "9 0" })
		if counts := words.Count(found); name == "x_test.go" && counts != (words.Counts{3, 2, 1}) {
			t.Errorf("counts %v", counts)
		}
	}
	if _, err := words.Go("x.go", []byte("no package")); err == nil {
		t.Error("a file that does not parse is accepted")
	}
}

// The width of a line counts characters, and a tab as TabWidth.
func TestWidth(t *testing.T) {
	for _, test := range []struct {
		indent string
		letter string
		n      int
		found  int
	}{
		{"", "x", words.MaxComment - 5, 0},
		{"", "x", words.MaxComment - 4, 1},
		{"", "ü", words.MaxComment - 5, 0},
		{"\t", "x", words.MaxComment - 9, 0},
		{"\t", "x", words.MaxComment - 8, 1},
		{"//\t", "x", words.MaxCode - 13, 0}, // code in a comment
		{"//\t", "x", words.MaxCode - 9, 1},
	} {
		src := "package p\n" + test.indent + "// a " + strings.Repeat(test.letter, test.n) + "\n"
		found, err := words.Go("x.go", []byte(src))
		if len(found) != test.found || err != nil {
			t.Errorf("%q: %v, want %d findings: %v", src, found, test.found, err)
		}
	}
}
