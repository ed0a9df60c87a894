package memory_test

import (
	"testing"

	"github.com/ojsengine/ojs/storage/storagetest"
)

func BenchmarkPages(b *testing.B) { storagetest.BenchmarkPages(b, open, 1_000_000) }
