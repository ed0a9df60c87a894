package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ProcessorTime is the processor time of a process and of its children, in seconds. It
// is 0 for process 0 and on systems without /proc.
func ProcessorTime(pid int) (seconds float64) {
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		stat, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(stat), ") ") // behind the name, which may hold spaces
		fields := strings.Fields(rest)
		self := path == fmt.Sprintf("/proc/%d/stat", pid)
		if pid == 0 || len(fields) < 15 || !self && fields[1] != strconv.Itoa(pid) {
			continue
		}
		for i, field := range fields[11:15] { // user, system, and the same of children that ended
			if ticks, _ := strconv.ParseFloat(field, 64); self || i < 2 {
				seconds += ticks / 100 // Linux has 100 ticks a second wherever Go runs
			}
		}
	}
	return seconds
}
