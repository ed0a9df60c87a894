package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ojsengine/ojs/bench/internal/report"
)

// The cost of a job: processor time, which other work on the machine disturbs less than
// jobs/s, and bytes of the log of the server.

// costs are the columns of cost, in the order of perJob.
var costs = []report.Metric{{Name: "CPU µs/job"}, {Name: "of the server"}, {Name: "WAL B/job"}}

// cost is what has been spent until a moment. Without a server it is the client only.
type cost struct {
	client, server time.Duration
	wal            int64
	known          bool // server and wal are
}

// meter reads the cost of this process and of a server, if it is one of this program's.
type meter struct {
	dsn string
	pid int // 0: none
}

func (m meter) read(ctx context.Context) (c cost, err error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return c, fmt.Errorf("processor time: %w", err)
	}
	c.client = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	if m.pid == 0 {
		return c, nil
	}
	if c.server, err = familyTime(m.pid); err != nil {
		return c, err
	}
	conn, err := pgx.Connect(ctx, m.dsn)
	if err != nil {
		return c, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	c.known = true
	return c, conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&c.wal)
}

// perJob is what jobs have cost since another moment, in the order of costs.
func (c cost) perJob(since cost, jobs int) []float64 {
	micros := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(jobs) }
	if !c.known {
		return []float64{math.NaN(), math.NaN(), math.NaN()}
	}
	client, server := c.client-since.client, c.server-since.server
	return []float64{micros(client + server), micros(server), float64(c.wal-since.wal) / float64(jobs)}
}

// familyTime is the processor time of a process, of its children, and of those children
// that have ended.
func familyTime(pid int) (time.Duration, error) {
	const tick = 10 * time.Millisecond // of Linux on all machines that Go runs on
	own, err := processTimes(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	ticks := own.self + own.ended
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range processes {
		if p, err := processTimes(path); err == nil && p.parent == pid { // or it has ended
			ticks += p.self
		}
	}
	return time.Duration(ticks) * tick, nil
}

// times are those of a process in ticks: its own, and of its children that have ended.
type times struct {
	parent      int
	self, ended int64
}

func processTimes(path string) (t times, err error) {
	stat, err := os.ReadFile(path)
	if err != nil {
		return t, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // behind the name, which may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return t, fmt.Errorf("%s: %q", path, stat)
	}
	var n [5]int64
	for i, field := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.ParseInt(fields[field], 10, 64); err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
	}
	return times{int(n[0]), n[1] + n[2], n[3] + n[4]}, nil
}
