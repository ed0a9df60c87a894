package sqlite_test

import (
	"testing"

	"github.com/ojsengine/ojs/storage/storagetest"
)

func BenchmarkPages(b *testing.B) { storagetest.BenchmarkPages(b, config.Open, 300_000) }
