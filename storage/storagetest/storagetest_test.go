package storagetest_test

import (
	"testing"

	"github.com/ojsengine/ojs/storage"
	"github.com/ojsengine/ojs/storage/memory"
	"github.com/ojsengine/ojs/storage/storagetest"
)

func TestMemory(t *testing.T) {
	storagetest.Run(t, storagetest.Config{
		Open:   func(testing.TB) storage.Storage { return memory.New() },
		Queues: true, Crons: true,
	})
}

func TestReference(t *testing.T) {
	storagetest.Run(t, storagetest.Config{
		Open:   func(testing.TB) storage.Storage { return storagetest.NewReference() },
		Queues: true, Crons: true,
	})
}
