// Package scheduler calls functions when their time has come. It has two halves: Heap, a
// pure min-heap of due times that knows no clock, and Scheduler, a goroutine that owns a
// Heap and one timer of a clock.Clock. With a mock clock the time is the test's to move.
package scheduler
