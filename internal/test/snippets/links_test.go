package snippets

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	inline  = regexp.MustCompile("`[^`\n]*`")
)

// Each relative link of a document leads to a file of the repository, and its anchor to
// a heading there.
func TestLinks(t *testing.T) {
	links := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		if filepath.Ext(file) != ".md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		prose := inline.ReplaceAllString(fence.ReplaceAllString(string(text), ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			if err := follow(file, m[1]); err != nil {
				t.Errorf("%s: %s: %v", file, m[1], err)
			}
		}
		return nil
	})
	if err != nil || links < 100 {
		t.Errorf("%d links: %v", links, err)
	}
}

func follow(from, target string) error {
	file, anchor, _ := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = filepath.Join(filepath.Dir(from), file)
	}
	if inside, err := filepath.Rel(root, to); err != nil || strings.HasPrefix(inside, "..") {
		return fmt.Errorf("is outside of the repository: %w", err)
	}
	if _, err := os.Stat(to); err != nil || anchor == "" {
		return err
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
		if slug(m[1]) == anchor {
			return nil
		}
	}
	return fmt.Errorf("no heading has this anchor")
}

// slug is the anchor of a heading, as GitHub makes it.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// A link to a missing file or heading is noticed.
func TestBrokenLinks(t *testing.T) {
	page := root + "/README.md"
	for target, ok := range map[string]bool{
		"docs/guide.md": true, "docs/guide.md#is-a-job-lost-or-run-twice": true, "#install": true,
		"docs/nothing.md": false, "docs/guide.md#nothing": false, "../outside.md": false,
	} {
		if err := follow(page, target); (err == nil) != ok {
			t.Errorf("%s: %v", target, err)
		}
	}
}
