package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is where and beside what was measured. Numbers without it cannot be compared.
type Machine struct {
	Go   string `json:"go"`
	OS   string `json:"os"`
	CPU  string `json:"cpu"`
	CPUs int    `json:"cpus"`
	// averages over 1, 5 and 15 minutes before the first round; "": the system does not
	// say
	Load string `json:"load"`
}

// ThisMachine describes the machine as it is now: call it before the first round.
func ThisMachine() Machine {
	m := Machine{Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, CPU: "unknown CPU",
		CPUs: runtime.GOMAXPROCS(0)}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(b)); len(fields) >= 3 {
			m.Load = strings.Join(fields[:3], " ")
		}
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	return m
}

func (m Machine) String() string {
	s := fmt.Sprintf("%s %s, %d x %s", m.Go, m.OS, m.CPUs, m.CPU)
	if m.Load != "" {
		s += ", load before: " + m.Load
	}
	return s
}
