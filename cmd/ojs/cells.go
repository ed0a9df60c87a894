package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/fleet"
)

type cellsVerb struct {
	List cellsListVerb `cmd:"" default:"withargs" help:"List cells, or find that of a key."`
	Move cellsMoveVerb `cmd:"" help:"Move partitions to another cell."`
}

type cellsListVerb struct {
	Key string `placeholder:"KEY" help:"Only the cell of a key."`
}

func (cellsListVerb) Help() string {
	return `A fleet is several storages, its cells, behind one front (package fleet). Each cell has a copy of the
map that says which of 4096 partitions is where. With --key the list has the cell of that key alone.`
}

// cellRow is a cell in JSON.
type cellRow struct {
	Cell       string `json:"cell"`
	Partitions int    `json:"partitions"`
	Ranges     string `json:"ranges"`
	Version    uint64 `json:"map_version"`
	Proposed   bool   `json:"proposed,omitempty"` // the map is not decided
	This       bool   `json:"this_storage,omitempty"`
	Partition  *int   `json:"partition,omitempty"` // of the key
	Moving     int    `json:"moving,omitempty"`    // partitions that a strict move holds
	MovingTo   string `json:"moving_to,omitempty"`
}

// Run lists the cells of the fleet to which the storage belongs.
func (v *cellsListVerb) Run(c *call) error {
	if _, err := c.store(); err != nil {
		return err
	}
	m, own, err := fleet.StoredMap(c.ctx, c.opened)
	if err != nil {
		return err
	}
	var rows []cellRow
	if m != nil {
		partition := fleet.Partition(v.Key)
		held, to := m.Moving()
		for _, name := range m.Cells() {
			r := cellRow{Cell: name, Partitions: len(m.Partitions(name)), Ranges: ranges(m.Partitions(name)),
				Version: m.Version, Proposed: m.Version == 1, This: name == own}
			for _, p := range held {
				if m.Cell(p) == name {
					r.Moving, r.MovingTo = r.Moving+1, to
				}
			}
			if v.Key != "" {
				if m.Cell(partition) != name {
					continue
				}
				r.Partition = &partition
			}
			rows = append(rows, r)
		}
	}
	return show(c, listing[cellRow]{
		columns: []column{{title: "CELL"}, {title: "PARTITIONS", right: true}, {title: "MAP", right: true},
			{title: "RANGES", long: true}, {}},
		row: func(r cellRow) []cell {
			return []cell{of(r.Cell), of(number(r.Partitions)), of(fmt.Sprint("v", r.Version)), of(r.Ranges),
				{r.note(), dim}}
		},
		id:   func(r cellRow) string { return r.Cell },
		none: "the storage is of no fleet",
	}, all(rows), nil)
}

func (r *cellRow) note() string {
	var notes []string
	if r.Proposed {
		notes = append(notes, "proposed, not in force")
	}
	if r.This && r.Partition == nil {
		notes = append(notes, "this storage")
	}
	if r.Moving > 0 {
		notes = append(notes, fmt.Sprintf("a strict move of %s to %s holds enqueues", number(r.Moving),
			r.MovingTo))
	}
	if r.Partition != nil {
		notes = append(notes, fmt.Sprintf("the key has partition %d", *r.Partition))
	}
	return strings.Join(notes, "; ")
}

type cellsMoveVerb struct {
	Cell     map[string]string `mapsep:"none" placeholder:"NAME=ADDRESS" help:"Another cell of the fleet. Give every one; ADDRESS#SCHEMA is a schema of PostgreSQL."`
	To       string            `required:"" placeholder:"NAME" help:"The cell that gets the partitions."`
	From     string            `xor:"which" required:"" placeholder:"NAME" help:"Move all partitions of this cell."`
	Key      string            `xor:"which" required:"" placeholder:"KEY" help:"Move the partition of a key."`
	Ranges   string            `xor:"which" required:"" placeholder:"RANGES" help:"Move these partitions, such as 0-511,600."`
	Strict   bool              `help:"Keep the order and the uniqueness of keys: enqueues wait until the old jobs have ended."`
	Within   time.Duration     `placeholder:"TIME" help:"End the move after this time; without, it takes as long as it needs."`
	CallTime time.Duration     `default:"30s" placeholder:"TIME" help:"How long an enqueue of a program takes at most."`
}

func (cellsMoveVerb) Help() string {
	return `--storage is one cell, and each --cell another one. A new cell joins the fleet by its first move; name it in all
programs before. Jobs end in the cell where they are, and recurring jobs fire there until they are
removed. With --strict, the move waits until no job of the partitions is left in other cells.
Programs may run meanwhile. If the command fails or ends early, run it again to complete the move.`
}

// Run moves partitions.
func (v *cellsMoveVerb) Run(c *call) (err error) {
	st, err := c.store()
	if err != nil {
		return err
	}
	m, own, err := fleet.StoredMap(c.ctx, st)
	switch {
	case err != nil:
		return err
	case m == nil || m.Version == 1:
		return refusedError{errors.New("the storage is of no fleet, or its map is not in force")}
	}
	cells := []fleet.Cell{{Name: own, Store: st}}
	for name, address := range v.Cell {
		address, schema, _ := strings.Cut(address, "#")
		if k, _, err := addressOf(address, schema); err != nil || k == onServer || k == onMemory {
			err = errors.Join(fmt.Errorf("--cell %s: the address is of no database", clean(name)), err)
			return usageError{err}
		}
		st, closing, err := c.open(c.ctx, address, schema)
		if err != nil {
			return fmt.Errorf("cell %s: %w", clean(name), err)
		}
		defer func() { err = errors.Join(err, closing()) }()
		cells = append(cells, fleet.Cell{Name: name, Store: st})
	}
	move := fleet.Move{To: v.To, Strict: v.Strict, CallTime: v.CallTime}
	if move.Partitions, err = v.partitions(m, own); err != nil {
		return err
	}
	ctx := c.ctx
	if v.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = c.clock.WithTimeout(ctx, v.Within)
		defer cancel()
	}
	moved, err := fleet.MovePartitions(ctx, cells, move)
	switch {
	case errors.Is(err, fleet.ErrMoving) || errors.Is(err, ojs.ErrInvalid) || errors.Is(err, fleet.ErrMap):
		return refusedError{err}
	case err != nil:
		return fixError{err, "run the command again: it completes the move"}
	}
	text := fmt.Sprintf("%s moved to %s", counted(len(move.Partitions), "partition"), v.To)
	if moved.Left > 0 {
		text += fmt.Sprintf("; %s left in other cells, to end there", counted(moved.Left, "job"))
	}
	if moved.Recurring > 0 {
		text += fmt.Sprintf("; %s left in other cells, to be removed there and set in %s",
			counted(moved.Recurring, "recurring job"), v.To)
	}
	return c.done(v.To, text)
}

// partitions returns the partitions to move. If those of --from have moved, it returns
// those of the new cell, so that the move is completed.
func (v *cellsMoveVerb) partitions(m *fleet.Map, own string) ([]int, error) {
	switch {
	case v.Key != "":
		return []int{fleet.Partition(v.Key)}, nil
	case v.From != "":
		if list := m.Partitions(v.From); len(list) > 0 {
			return list, nil
		}
		if _, named := v.Cell[v.From]; named || v.From == own {
			return m.Partitions(v.To), nil
		}
		return nil, usageError{fmt.Errorf("--from %q is no cell: name it by --cell", v.From)}
	}
	var list []int
	for _, part := range strings.Split(v.Ranges, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, bad := strconv.Atoi(last)
		if err != nil || bad != nil || from > to || to >= fleet.Partitions {
			return nil, usageError{fmt.Errorf("--ranges %q: use ranges from 0 to %d, such as 0-511,600", part,
				fleet.Partitions-1)}
		}
		for p := from; p <= to; p++ {
			list = append(list, p)
		}
	}
	return list, nil
}

// ranges writes partitions as --ranges takes them.
func ranges(partitions []int) string {
	var parts []string
	for i := 0; i < len(partitions); {
		n := i + 1
		for n < len(partitions) && partitions[n] == partitions[n-1]+1 {
			n++
		}
		part := strconv.Itoa(partitions[i])
		if n > i+1 {
			part += "-" + strconv.Itoa(partitions[n-1])
		}
		parts, i = append(parts, part), n
	}
	return strings.Join(parts, ",")
}
