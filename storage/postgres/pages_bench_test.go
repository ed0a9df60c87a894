package postgres_test

import (
	"testing"

	"github.com/ojsengine/ojs/storage/storagetest"
)

func BenchmarkPages(b *testing.B) { storagetest.BenchmarkPages(b, configOn(connect(b)).Open, 300_000) }
