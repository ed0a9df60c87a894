// Command limitpictures draws the pictures of docs/limits.md: what each kind of limit
// does over time. Each picture is a run of an engine under virtual time, so that it shows
// what the engine does. Run it at the root of the repository:
//
//	go run ./internal/limitpictures
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// directory has the pictures, seen from the root of the repository.
const directory = "docs/limits"

func main() {
	for _, s := range scenes {
		jobs, err := s.run()
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, s.name+".svg"), s.draw(jobs), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
