// Package locks has the mutex of an engine's parts, whose order a build with the tag
// ojslocks checks: there a goroutine panics that takes a lock while it holds one that
// comes later in the order. Other builds check nothing, and pay nothing.
package locks

// order has the packages whose functions take locks, and a type where its methods have a
// place of their own. A lock may be taken while locks of earlier places are held, and
// never two of one place.
var order = []string{
	"engine", "caller", "jobtypes", "fetch.(*Delivery)", "settle", "claims", "attempts", "fetch",
	"admission", "env", "chores", "pipeline", "sleeps", "alarm", "eventlog", "ids", "idle", "scheduler",
	"telemetry", "cron", "enqueue", "joblog", "publish", "waits",
	"memory", // storage/memory, which calls nothing of the engine under its lock
}
