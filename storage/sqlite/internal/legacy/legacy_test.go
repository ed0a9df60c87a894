package legacy

import (
	"fmt"
	"strings"
	"testing"
)

// Each migration has the number of its place.
func TestMigrations(t *testing.T) {
	files, err := migrations.ReadDir("migrations")
	if err != nil || len(files) != Newest {
		t.Fatal(len(files), err)
	}
	for i, f := range files {
		if !strings.HasPrefix(f.Name(), fmt.Sprintf("%04d_", i+1)) {
			t.Errorf("%s is migration %d", f.Name(), i+1)
		}
	}
}
