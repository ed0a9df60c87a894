// Package policy computes what the policies of package ojs mean: which retry policy is in force, how long to wait, what
// becomes of an ended attempt, how a duration is written. Everything in it is pure: no clock, no goroutine, no I/O, no
// random source; time and random draws are arguments. The one thing that it remembers is the strategies that RegisterBackoff
// adds. Engines, adapters and tests call it; programs need the presets, which are the retry policies of other systems, and
// seldom the rest.
package policy
