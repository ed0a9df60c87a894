package server_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	benchChild()
	goleak.VerifyTestMain(m)
}
