package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/inspect"
	"github.com/ojsengine/ojs/telemetry"
)

type topVerb struct {
	Every time.Duration `default:"2s" help:"How often to snap."`
	Once  bool          `help:"Print it once and end."`
}

func (topVerb) Help() string {
	return `Keys: up and down select a queue, p pauses or resumes it after a confirmation, q ends.

Rates are of the last minute, by what engines report. Without a terminal --once is implied.`
}

// Run shows the storage until it is stopped.
func (v *topVerb) Run(c *call) error {
	if v.Every < 100*time.Millisecond {
		return usageError{fixError{errTooOften, "give --every 100ms or more"}}
	}
	first, err := c.snapshot()
	if err != nil {
		return err
	}
	if _, isTerminal := terminal(c.out); v.Once || !isTerminal {
		return c.page(first.Storage, first.stats, func() []string {
			rows, err := strconv.Atoi(c.env("LINES"))
			if err != nil {
				rows = 24
			}
			m := topModel{call: c, now: first, height: rows}
			return m.lines()
		})
	}
	m := topModel{call: c, every: v.Every, now: first, height: 24}
	_, err = tea.NewProgram(m, tea.WithContext(c.ctx), tea.WithOutput(c.out), tea.WithInput(c.in),
		tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	return err
}

// snapshot is what the storage has at a time.
type snapshot struct {
	stats
	in, out  float64 // jobs in a second, by what engines have reported in the last minute
	running  []listed
	failures []inspect.FailureGroup
}

// snapshot reads the storage.
func (c *call) snapshot() (*snapshot, error) {
	op, err := c.operator()
	if err != nil {
		return nil, err
	}
	s, err := c.stats(op)
	if err != nil {
		return nil, err
	}
	snap := &snapshot{stats: s}
	from := s.At.Add(-time.Minute).Truncate(10 * time.Second)
	history, err := telemetry.History(c.ctx, c.opened, s.At, from, s.At, 10*time.Second)
	if err != nil {
		return nil, err
	}
	for i := range history {
		for j := range history[i].Meters {
			m := &history[i].Meters[j]
			snap.in += float64(m.Enqueued) / s.At.Sub(from).Seconds()
			snap.out += float64(m.Completed+m.Discarded+m.Cancelled+m.Expired) / s.At.Sub(from).Seconds()
		}
	}
	f := inspect.Filter{States: []ojs.State{ojs.StateActive}}
	page, err := op.Jobs().Page(c.ctx, f, "", 200)
	if err != nil {
		return nil, err
	}
	for i, job := range page.Jobs {
		snap.running = append(snap.running, listed{job, page.Workers[i]})
	}
	slices.SortStableFunc(snap.running, func(a, b listed) int { return a.StartedAt.Compare(b.StartedAt) })
	groups, err := op.Jobs().Failures(c.ctx, inspect.Filter{}, 250)
	snap.failures = groups.Groups
	slices.SortStableFunc(snap.failures,
		func(a, b inspect.FailureGroup) int { return b.Last.Compare(a.Last) })
	return snap, err
}

// topModel is the state of the view.
type topModel struct {
	*call
	every    time.Duration
	now      *snapshot
	height   int
	selected int    // of the queues
	asked    string // the queue that p asks about; "": none
	said     string // what a key has done
}

// snapshotMsg is a further snapshot, and didMsg the result of a key.
type (
	snapshotMsg struct {
		snapshot *snapshot
		err      error
	}
	didMsg string
)

// Init implements tea.Model.
func (m topModel) Init() tea.Cmd { return m.next }

// next waits, and reads the storage again.
func (m topModel) next() tea.Msg {
	if !m.wait(m.every) {
		return tea.Quit()
	}
	snap, err := m.snapshot()
	return snapshotMsg{snap, err}
}

// Update implements tea.Model.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.style.width, m.height = msg.Width, msg.Height
	case snapshotMsg:
		if msg.err != nil {
			m.said = plainError(msg.err) // the next one may succeed
			return m, m.next
		}
		m.now = msg.snapshot
		m.selected = min(m.selected, max(0, len(m.now.Queues)-1))
		return m, m.next
	case didMsg:
		m.said = string(msg)
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

func (m topModel) key(key string) (tea.Model, tea.Cmd) {
	if m.asked != "" {
		name := m.asked
		m.asked = ""
		if m.said = "not changed"; key == "y" {
			m.said = "…"
			return m, func() tea.Msg { return m.toggle(name) }
		}
		return m, nil
	}
	switch key {
	case "q", "ctrl+c", "esc":
		return m, tea.Quit
	case "up", "k":
		m.selected = max(0, m.selected-1)
	case "down", "j":
		m.selected = max(0, min(len(m.now.Queues)-1, m.selected+1))
	case "p":
		if len(m.now.Queues) > 0 {
			m.asked = m.now.Queues[m.selected].Name
		}
	}
	return m, nil
}

// stateOf is the state of a queue in the latest snap.
func (m *topModel) stateOf(name string) ojs.QueueState {
	for _, q := range m.now.Queues {
		if q.Name == name {
			return q.State
		}
	}
	return ojs.QueueActive
}

// toggle pauses a queue that is active, and resumes another.
func (m *topModel) toggle(name string) tea.Msg {
	queues, err := m.queues()
	did := "paused"
	if err == nil && m.stateOf(name) == ojs.QueueActive {
		_, err = queues.Pause(m.acting(), name)
	} else if err == nil {
		did = "active"
		_, err = queues.Resume(m.acting(), name)
	}
	if err != nil {
		return didMsg(plainError(err))
	}
	return didMsg("queue " + name + " is " + did)
}

// View implements tea.Model.
func (m topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines lays out the view within the height: a third for each of queues, running jobs and
// failures. A part that needs less leaves the rest to the others.
func (m *topModel) lines() []string {
	s := m.style
	rates := "in -  out -: no engine reports"
	if m.now.Workers > 0 {
		rates = fmt.Sprintf("in %.1f/s  out %.1f/s in the last minute", m.now.in, m.now.out)
	}
	lines := []string{m.headline(), rates, ""}
	room := max(6, m.height-len(lines)-2) // a blank line and the foot
	var rows [][]cell
	for i := range m.now.Queues {
		rows = append(rows, m.now.Queues[i].row())
	}
	marked := s
	if m.every > 0 && s.width > 0 {
		marked.width -= 2
	}
	queues := marked.lines(queueColumns, rows)
	if m.every > 0 { // the view is live
		for i := range queues {
			mark := "  "
			if i == m.selected+1 {
				mark = "> "
			}
			queues[i] = mark + queues[i]
		}
	}
	for _, n := range []int{len(m.now.running), len(m.now.failures)} {
		if n > 0 {
			room -= min(n+2, room/3)
		}
	}
	lines = append(lines, window(queues, room, m.selected)...)
	rows = nil
	for _, job := range m.now.running {
		rows = append(rows, []cell{of(job.ID), of(job.Type), of(job.Queue),
			tinted(cyan, age(job.StartedAt, m.now.At)),
			of(job.worker)})
	}
	left := max(4, m.height-len(lines)-2)
	if len(m.now.failures) > 0 {
		left -= min(len(m.now.failures)+2, left/2)
	}
	if len(rows) > 0 {
		running := s.lines([]column{{title: "RUNNING"}, {title: "TYPE", long: true},
			{title: "QUEUE", long: true, rank: 1},
			{title: "FOR", right: true}, {title: "WORKER", long: true, rank: 2}}, rows)
		lines = append(append(lines, ""), window(running, left, 0)...)
	}
	rows = nil
	for _, g := range m.now.failures {
		rows = append(rows, []cell{of(number(g.N)), of(age(g.Last, m.now.At)), of(g.Type),
			tinted(red, cmp.Or(g.ErrorType, "error")+": "+g.Message)})
	}
	left = max(3, m.height-len(lines)-2)
	if len(rows) > 0 {
		failures := s.lines([]column{{title: "FAILED", right: true}, {title: "LAST", right: true},
			{title: "TYPE", long: true}, {title: "ERROR", long: true}}, rows)
		lines = append(append(lines, ""), window(failures, left-1, 0)...)
	}
	if m.every == 0 {
		return lines
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return append(lines[:m.height-1], m.foot())
}

// window is the first line and as many of the others as fit, those around one of them.
func window(lines []string, room, around int) []string {
	room = max(room, 2)
	if len(lines) <= room {
		return lines
	}
	from := min(max(0, around-(room-2)), len(lines)-room)
	return append([]string{lines[0]}, lines[1+from:room+from]...)
}

func (m *topModel) headline() string {
	st := &m.now.stats
	paused := ""
	if st.Paused {
		paused = "EVERYTHING IS PAUSED  "
	}
	text := fmt.Sprintf("%s  %s  %s%s, %d available, %d active", st.Storage, st.At.Format("15:04:05Z"),
		paused, counted(st.Jobs, "job"), st.States[ojs.StateAvailable], st.States[ojs.StateActive])
	if st.Slots > 0 {
		text += fmt.Sprintf(", %d of %d slots busy", st.Busy, st.Slots)
	}
	if m.style.width > 0 {
		text = cut(text, m.style.width)
	}
	return m.style.paint(bold, text)
}

func (m *topModel) foot() string {
	switch {
	case m.asked != "" && m.stateOf(m.asked) == ojs.QueueActive:
		return m.style.paint(yellow, "pause queue "+m.asked+"? y or n")
	case m.asked != "":
		return m.style.paint(yellow, "resume queue "+m.asked+"? y or n")
	}
	text := "up, down: queue   p: pause or resume   q: quit"
	if m.said != "" {
		text += "   " + m.said
	}
	if m.style.width > 0 {
		text = cut(text, m.style.width)
	}
	return m.style.paint(dim, text)
}
