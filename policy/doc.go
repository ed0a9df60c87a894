// Package policy applies the policies of package ojs: the retry policy in force, the
// delay before a retry, the decision on an ended attempt, the text of a duration. It is
// pure: no clock, no goroutine, no I/O, no random source; time and random draws are
// arguments. Its only state is the strategies that RegisterBackoff adds. Engines,
// adapters and tests call it. Programs seldom need it: package preset has the retry
// policies of other systems.
package policy
