// Package racedetector tells tests whether the race detector watches them: it makes them
// about eight times as slow, and it allocates.
package racedetector
