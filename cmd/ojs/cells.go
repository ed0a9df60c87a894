package main

import (
	"fmt"

	"github.com/ojsengine/ojs/fleet"
)

type cellsVerb struct {
	Key string `placeholder:"KEY" help:"Only the cell of a key."`
}

func (cellsVerb) Help() string {
	return `A fleet is several storages, its cells, behind one front (package fleet). Each cell has a copy of the
map that says which of 4096 partitions is where. With --key the list has the cell of that key alone.`
}

// cellRow is a cell in JSON.
type cellRow struct {
	Cell       string `json:"cell"`
	Partitions int    `json:"partitions"`
	Version    uint64 `json:"map_version"`
	This       bool   `json:"this_storage,omitempty"`
	Partition  *int   `json:"partition,omitempty"` // of the key
}

// Run lists the cells of the fleet to which the storage belongs.
func (v *cellsVerb) Run(c *call) error {
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
		for _, name := range m.Cells() {
			r := cellRow{Cell: name, Partitions: len(m.Partitions(name)), Version: m.Version,
				This: name == own}
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
			{}},
		row: func(r cellRow) []cell {
			note := ""
			if r.This {
				note = "this storage"
			}
			if r.Partition != nil {
				note = fmt.Sprintf("the key has partition %d", *r.Partition)
			}
			return []cell{of(r.Cell), of(number(r.Partitions)), of(fmt.Sprint("v", r.Version)), {note, dim}}
		},
		id:   func(r cellRow) string { return r.Cell },
		none: "the storage is of no fleet",
	}, all(rows), nil)
}
