// Package words finds what CONTRIBUTING.md does not allow in comments, documents and
// messages: phrases that hide their subject, and lines that are too long.
package words

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Rule is what a finding breaks.
type Rule int

const (
	Phrase      Rule = iota // a phrase that CONTRIBUTING.md bans
	LongComment             // a comment line of more than MaxComment columns
	LongCode                // a line of code of more than MaxCode columns
	numRules
)

// Limits of a line, in columns. A tab counts as TabWidth.
const (
	MaxComment = 90
	MaxCode    = 110
	TabWidth   = 4
)

// longLiteral is the length from which a string literal excuses the width of its line: a
// text that people search for stays whole.
const longLiteral = 80

// Finding is one place that breaks a rule.
type Finding struct {
	File string
	Line int
	Rule Rule
	What string // the banned words, or the width of the line
	Text string // the sentence or the line
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.What, f.Text)
}

// Counts is a number of findings by Rule.
type Counts [numRules]int

// Count counts findings by rule.
func Count(findings []Finding) (c Counts) {
	for _, f := range findings {
		c[f.Rule]++
	}
	return c
}

// Go checks a source file: its comments, the text of its string literals, its line
// lengths. String literals of tests are not checked for phrases.
func Go(file string, src []byte) ([]Finding, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(src), "\n")
	exempt := make([]bool, len(lines)+2)  // lines whose length is not the author's choice
	comment := make([]bool, len(lines)+2) // lines that hold a comment and nothing else
	var found []Finding
	for _, group := range f.Comments {
		output := false // an expected output keeps its lines
		var sentences []string
		start := fset.Position(group.Pos()).Line
		for _, c := range group.List {
			first := fset.Position(c.Pos())
			text := strings.Split(strings.TrimSuffix(strings.TrimPrefix(c.Text[2:], " "), "*/"), "\n")
			alone := strings.TrimSpace(lines[first.Line-1][:first.Column-1]) == ""
			output = output || isOutput(c.Text)
			for i := range text {
				comment[first.Line+i] = alone
				exempt[first.Line+i] = output || isDirective(c.Text)
				text[i] = strings.TrimSpace(text[i])
			}
			if isDirective(c.Text) {
				text = make([]string, len(text))
			}
			for len(sentences) < first.Line-start {
				sentences = append(sentences, "")
			}
			sentences = append(sentences, text...)
		}
		if !output {
			found = append(found, phrases(file, start, sentences)...)
		}
	}
	isTest := strings.HasSuffix(file, "_test.go")
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		first, last := fset.Position(lit.Pos()).Line, fset.Position(lit.End()).Line
		if first != last { // what a raw string says is data
			for i := first; i <= last; i++ {
				exempt[i] = true
			}
			return true
		}
		if utf8.RuneCountInString(lit.Value) > longLiteral {
			exempt[first] = true
		}
		if text, err := strconv.Unquote(lit.Value); err == nil && !isTest && strings.Contains(text, " ") {
			if bad := bannedWords.FindString(text); bad != "" {
				found = append(found, Finding{file, first, Phrase, strconv.Quote(bad), text})
			}
		}
		return true
	})
	for i, line := range lines {
		width := utf8.RuneCountInString(line) + (TabWidth-1)*strings.Count(line, "\t")
		rule, limit := LongCode, MaxCode
		if text := strings.TrimSpace(line); comment[i+1] && !strings.HasPrefix(text, "//\t") &&
			strings.Contains(strings.TrimLeft(text, " /"), " ") { // neither code nor one long word
			rule, limit = LongComment, MaxComment
		}
		if width > limit && !exempt[i+1] {
			what := fmt.Sprintf("%d columns of %d", width, limit)
			found = append(found, Finding{file, i + 1, rule, what, strings.TrimSpace(line)})
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	return found, nil
}

var directive = regexp.MustCompile(`^//[a-z]+:[a-z]`)

func isDirective(comment string) bool { return directive.MatchString(comment) }

var output = regexp.MustCompile(`(?i)^// *(unordered )?output:`)

func isOutput(comment string) bool { return output.MatchString(comment) }

// Markdown checks a document for banned phrases. In fenced code only comments are
// checked.
func Markdown(file string, src []byte) (found []Finding) {
	var block []string // lines of the current paragraph, item or cell
	start := 0
	end := func() {
		found = append(found, phrases(file, start, block)...)
		block = nil
	}
	fenced := false
	for i, line := range strings.Split(string(src), "\n") {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "```"):
			end()
			fenced = !fenced
			continue
		case fenced:
			if _, comment, ok := strings.Cut(line, "// "); ok {
				found = append(found, phrases(file, i+1, []string{comment})...)
			}
			continue
		case text == "":
			end()
			continue
		case strings.HasPrefix(text, "#"):
			end()
			if bad := bannedWords.FindString(text); bad != "" {
				found = append(found, Finding{file, i + 1, Phrase, strconv.Quote(bad), text})
			}
			continue
		case strings.HasPrefix(text, "|"):
			end()
			for cell := range strings.SplitSeq(text, "|") {
				found = append(found, phrases(file, i+1, []string{strings.TrimSpace(cell)})...)
			}
			continue
		}
		if item := listItem.FindString(text); item != "" {
			end()
			text = text[len(item):]
		}
		if len(block) == 0 {
			start = i + 1
		}
		block = append(block, text)
	}
	end()
	return found
}

var listItem = regexp.MustCompile(`^([-*]|\d+\.) +`)

// bannedWords are wrong anywhere in a sentence: they hide a subject, tell history, or are
// pictures.
var bannedWords = regexp.MustCompile(`(?i)\b(?:` + alternatives(`
whoever
whatever
somebody
someone
nobody
anybody
everybody
no longer
in place of
anymore
any more(?:[.,;:)]|$)
bec[ao]mes? of
pass(?:es|ed)? over
is the way of
`) + `)`)

// bannedSubjects are wrong as the first words of a sentence or of a clause.
var bannedSubjects = regexp.MustCompile(`^(?:` + alternatives(`
Who
What
Those
Others
One (?:that|who|whose|of them)
Some of them
None of them
Nothing that
`) + `)\b|; (?:who|what|those|others|one that|one who)\b`)

func alternatives(lines string) string {
	return strings.ReplaceAll(strings.TrimSpace(lines), "\n", "|")
}

var (
	sentenceEnd = regexp.MustCompile(`[.!?:][)"]*\s+`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
	comparison  = regexp.MustCompile(`no\slonger\s+than`)
)

// phrases checks text that begins at a line, one string a line.
func phrases(file string, line int, text []string) (found []Finding) {
	for len(text) > 0 {
		n := slices.Index(text, "") // a paragraph ends there
		if n < 0 {
			n = len(text)
		}
		found = append(found, paragraph(file, line, strings.Join(text[:n], "\n"))...)
		n = min(n+1, len(text))
		text, line = text[n:], line+n
	}
	return found
}

func paragraph(file string, line int, text string) (found []Finding) {
	for text != "" {
		end := len(text)
		if loc := sentenceEnd.FindStringIndex(text); loc != nil {
			end = loc[1]
		}
		sentence := strings.Join(strings.Fields(text[:end]), " ")
		bare := comparison.ReplaceAllString(codeSpan.ReplaceAllString(sentence, "`code`"), "")
		bad := bannedWords.FindString(bare)
		if bad == "" && !strings.HasSuffix(bare, "?") {
			bad = bannedSubjects.FindString(bare)
		}
		if bad != "" {
			found = append(found, Finding{file, line, Phrase, strconv.Quote(bad), sentence})
		}
		line += strings.Count(text[:end], "\n")
		text = text[end:]
	}
	return found
}
