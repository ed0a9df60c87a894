package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// The pictures of docs/limits.md show what the engine does.
func TestPictures(t *testing.T) {
	dir := filepath.Join("..", "..", directory)
	page, err := os.ReadFile(dir + ".md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[string]bool)
	for _, s := range scenes {
		jobs, err := s.run()
		if err != nil {
			t.Fatal(s.name, err)
		}
		want, file := s.draw(jobs), s.name+".svg"
		drawn[file] = true
		have, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what the engine does (%v): run go run ./internal/limitpictures", file, err)
		}
		if !bytes.Contains(page, []byte("limits/"+file)) {
			t.Errorf("docs/limits.md does not show %s", file)
		}
		dec := xml.NewDecoder(bytes.NewReader(want))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !drawn[f.Name()] {
			t.Errorf("docs/limits/%s is no picture of a limit", f.Name())
		}
	}
}
