// Package engine runs jobs. An Engine claims jobs from a storage.Storage, calls their
// handlers, and settles their attempts by their retry policies.
//
// Nothing in it polls: an enqueue starts a claim, and one timer waits for the storage's
// next deadline. Delivery is at least once; see package ojs.
package engine
