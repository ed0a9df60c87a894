package postgres_test

import (
	"testing"

	"github.com/ojsengine/ojs/storage/storagetest"
)

func BenchmarkPages(b *testing.B) {
	storagetest.BenchmarkPages(b, configOn(b, connect(b)).Open, 1_000_000)
}
