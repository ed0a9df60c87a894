package storage

import "context"

// LogStore has what attempts have logged (Change.Log), apart from the records of their
// jobs. A durable storage keeps the logs as it keeps jobs [logs-5]. They are deleted with
// their job: a job that is stored anew under its id has none [logs-4].
type LogStore interface {
	// Logs returns the logs of a job, the oldest first [logs-1]. An id that is not stored
	// has none [logs-1, logs-4].
	Logs(ctx context.Context, id string) ([]Log, error)
}

// Log is what an attempt has logged.
type Log struct {
	Version uint64 // of the job after the change that stored it [logs-1]
	Data    []byte // as Change.Log had it [logs-1]
}

// MaxLogs is how many logs of a job are kept: the newest [logs-3].
const MaxLogs = 10
