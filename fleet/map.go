package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
)

// Partitions is how many partitions a fleet has. It does not change.
const Partitions = 4096

// Errors of a fleet, for errors.Is.
var (
	// ErrCells refuses jobs whose keys lie in different cells.
	ErrCells = errors.New("ojs: keys in different cells")
	// ErrMap refuses a configuration that does not fit the stored map.
	ErrMap = errors.New("ojs: cells do not fit the map of the fleet")
	// ErrMoving says that a job has waited too long for a strict move of its partition.
	ErrMoving = errors.New("ojs: the partition is moving")
)

var insideOptions = bridge.Take[bridge.Options[ojs.Options]]()

// WithCell puts the job into the cell of a key, such as the id of a tenant: UTF-8 of 1 to
// 255 bytes. All jobs of a key are in one cell. An engine outside of a fleet ignores the
// key, and so do the engines of Fleet.Cell, whose jobs stay in their cells.
func WithCell(key string) ojs.Option {
	partition := Partition(key)
	return func(o *ojs.Options) { insideOptions.Cell(o, key, partition+1) }
}

// inPartition gives a job an id of a partition.
func inPartition(partition int) ojs.Option {
	return func(o *ojs.Options) { insideOptions.Place(o).Partition = partition + 1 }
}

// withNewID gives a job an id that was drawn for it.
func withNewID(id string) ojs.Option {
	set := ojs.WithID(id)
	return func(o *ojs.Options) {
		set(o)
		insideOptions.Place(o).New = true
	}
}

// Partition returns the partition of a key, from 0 to 4095: the low 12 bits of its 64-bit
// FNV-1a hash, mixed by the finalizer of MurmurHash3. It never changes, so that programs
// in other languages may compute it.
func Partition(key string) int {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int((h ^ h>>33) % Partitions)
}

// PartitionOf returns the partition that the id of a job carries: the 12 bits after the
// variant of its UUIDv7. It reports false if id is no UUIDv7.
func PartitionOf(id string) (partition int, ok bool) {
	if len(id) != 36 || id[14] != '7' || id[18] != '-' {
		return 0, false
	}
	bits, err := strconv.ParseUint(id[19:23], 16, 16)
	return int(bits >> 2 & 0xfff), err == nil
}

// Map says which cell has which partition, at one version. It does not change.
type Map struct {
	Version uint64 // from 1 on
	Fleet   string // the id of the fleet, which was drawn with its first map

	owners []string // by partition
	held   []int    // the partitions that a strict move holds
	to     string   // where they move to
}

// Cell returns the cell that has a partition, from 0 to 4095.
func (m *Map) Cell(partition int) string { return m.owners[partition] }

// Cells returns the cells that have partitions, sorted by name.
func (m *Map) Cells() []string {
	names := slices.Compact(slices.Clone(m.owners))
	slices.Sort(names)
	return slices.Compact(names)
}

// Partitions returns the partitions that a cell has, in their order.
func (m *Map) Partitions(cell string) (list []int) {
	for p, owner := range m.owners {
		if owner == cell {
			list = append(list, p)
		}
	}
	return list
}

// Moving returns the partitions that a strict move holds, and the cell that they move to:
// nil and "" if there are none.
func (m *Map) Moving() (partitions []int, to string) { return slices.Clone(m.held), m.to }

// String lists the cells with the numbers of their partitions.
func (m *Map) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d:", m.Version)
	for i, name := range m.Cells() {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s %d", name, len(m.Partitions(name)))
	}
	if len(m.held) > 0 {
		fmt.Fprintf(&b, "; moving to %s: %d", m.to, len(m.held))
	}
	return b.String()
}

// next returns the map of the next version, to be changed.
func (m *Map) next() *Map {
	c := *m
	c.Version++
	c.owners, c.held = slices.Clone(m.owners), slices.Clone(m.held)
	return &c
}

// even makes the first map of a fleet. The names are sorted.
func even(fleet string, names []string) *Map {
	m := &Map{Version: 1, Fleet: fleet, owners: make([]string, Partitions)}
	for p := range m.owners {
		m.owners[p] = names[p*len(names)/Partitions]
	}
	return m
}

// document is the form of a copy of the map. Its members are stored: one may be added,
// none may change its meaning.
type document struct {
	Fleet   string `json:"fleet"`
	Version uint64 `json:"version"`
	Cell    string `json:"cell"` // whose copy it is
	Owners  []span `json:"owners"`
	Held    []int  `json:"held,omitempty"`
	To      string `json:"to,omitempty"`
}

// span is some partitions in a row.
type span struct {
	Cell       string `json:"cell"`
	Partitions int    `json:"partitions"`
}

// encode makes the copy of a cell.
func (m *Map) encode(cell string) []byte {
	d := document{Fleet: m.Fleet, Version: m.Version, Cell: cell, Held: m.held, To: m.to}
	for _, owner := range m.owners {
		if n := len(d.Owners); n == 0 || d.Owners[n-1].Cell != owner {
			d.Owners = append(d.Owners, span{Cell: owner})
		}
		d.Owners[len(d.Owners)-1].Partitions++
	}
	data, _ := json.Marshal(d) // strings and numbers encode
	return data
}

// decode reads the copy of a cell.
func decode(cell string, data []byte) (*Map, error) {
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("%w: the copy in cell %s does not decode: %w", ErrMap, cell, err)
	}
	if d.Cell != cell {
		return nil, fmt.Errorf("%w: the storage that is configured as cell %s is that of cell %s", ErrMap,
			cell, d.Cell)
	}
	m := &Map{Version: d.Version, Fleet: d.Fleet, held: d.Held, to: d.To}
	for _, s := range d.Owners {
		if s.Partitions < 1 || s.Partitions > Partitions-len(m.owners) {
			return nil, fmt.Errorf("%w: the copy in cell %s has not %d partitions", ErrMap, cell, Partitions)
		}
		m.owners = append(m.owners, slices.Repeat([]string{s.Cell}, s.Partitions)...)
	}
	badHeld := slices.ContainsFunc(m.held, func(p int) bool { return p < 0 || p >= Partitions })
	if len(m.owners) != Partitions || m.Version == 0 || badHeld {
		return nil, fmt.Errorf("%w: the copy in cell %s has not %d partitions", ErrMap, cell, Partitions)
	}
	return m, nil
}
