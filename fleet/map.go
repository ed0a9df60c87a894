package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/internal/bridge"
	"github.com/ojsengine/ojs/storage"
)

// Partitions is how many partitions a fleet has. It does not change.
const Partitions = 4096

// Errors of a fleet, for errors.Is.
var (
	// ErrCells refuses jobs whose keys lie in different cells.
	ErrCells = errors.New("ojs: keys in different cells")
	// ErrMap refuses a configuration that does not fit the stored map.
	ErrMap = errors.New("ojs: cells do not fit the map of the fleet")
	// ErrMoving refuses a job of a partition that a strict move holds, and a move beside
	// another one. Try again later.
	ErrMoving = errors.New("ojs: the partition is moving")
)

var insideOptions = bridge.Take[bridge.Options[ojs.Options]]()

// WithCell puts the job into the cell of a key, such as the id of a tenant: UTF-8 of 1 to
// 255 bytes. All jobs of a key that a fleet enqueues are in one cell. An engine does not
// choose a cell, one of Fleet.Cell neither: its jobs are in its own storage, under ids
// with the partition of the key.
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
	Version uint64 // from 2 on: version 1 is a proposal, by which no job is placed
	Fleet   string // the id of the fleet, which was drawn with its first map

	owners []string // by partition
	held   *hold    // nil: no strict move is under way
}

// hold is a strict move under way. Its members are stored.
type hold struct {
	Partitions []int  `json:"partitions"` // sorted
	To         string `json:"to"`
	Owner      string `json:"owner"` // drawn by the program that makes the move
}

func (h *hold) has(partition int) bool { return contains(h.Partitions, partition) }

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

// Moving returns the partitions that a strict move holds, sorted, and the cell that they
// move to; nil and "" if there is no strict move.
func (m *Map) Moving() (partitions []int, to string) {
	if m.held == nil {
		return nil, ""
	}
	return slices.Clone(m.held.Partitions), m.held.To
}

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
	if m.held != nil {
		fmt.Fprintf(&b, "; moving to %s: %d", m.held.To, len(m.held.Partitions))
	}
	return b.String()
}

// next returns the map of the next version, to be changed.
func (m *Map) next() *Map {
	c := *m
	c.Version++
	c.owners = slices.Clone(m.owners)
	return &c
}

// give gives partitions to a cell.
func (m *Map) give(partitions []int, cell string) {
	for _, p := range partitions {
		m.owners[p] = cell
	}
}

// even proposes the map of a new fleet, with equal shares for the sites.
func even(fleet string, sites []*site) *Map {
	m := &Map{Version: proposed, Fleet: fleet, owners: make([]string, Partitions)}
	for p := range m.owners {
		m.owners[p] = sites[p*len(sites)/Partitions].name
	}
	return m
}

// document is the form of a copy of the map. Its members are stored. A program refuses a
// copy with members that it does not know.
type document struct {
	Fleet   string `json:"fleet"`
	Version uint64 `json:"version"`
	Cell    string `json:"cell"` // whose copy it is
	Owners  []span `json:"owners"`
	Held    *hold  `json:"held,omitempty"`
}

// span is some partitions in a row.
type span struct {
	Cell       string `json:"cell"`
	Partitions int    `json:"partitions"`
}

// encode makes the copy of a cell.
func (m *Map) encode(cell string) []byte {
	d := document{Fleet: m.Fleet, Version: m.Version, Cell: cell, Held: m.held}
	for _, owner := range m.owners {
		if n := len(d.Owners); n == 0 || d.Owners[n-1].Cell != owner {
			d.Owners = append(d.Owners, span{Cell: owner})
		}
		d.Owners[len(d.Owners)-1].Partitions++
	}
	data, _ := json.Marshal(d) // strings and numbers encode
	return data
}

// StoredMap reads the copy of the map in the storage of a cell, without an engine. It
// returns the name of the cell, too, and nil if the storage is of no fleet.
func StoredMap(ctx context.Context, store storage.DocumentStore) (m *Map, cell string, err error) {
	docs, err := store.Documents(ctx, storage.KindValue, storage.DocumentQuery{Names: []string{mapKey}})
	if err != nil || len(docs) == 0 {
		return nil, "", err
	}
	var d document
	if err := json.Unmarshal(docs[0].Data, &d); err != nil {
		return nil, "", fmt.Errorf("%w: the copy does not decode: %w", ErrMap, err)
	}
	m, err = decode(d.Cell, docs[0].Data)
	return m, d.Cell, err
}

// decode reads the copy of a cell.
func decode(cell string, data []byte) (*Map, error) {
	var d document
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&d); err != nil {
		return nil, fmt.Errorf("%w: the copy in cell %s does not decode: %w", ErrMap, cell, err)
	}
	if d.Cell != cell {
		return nil, fmt.Errorf("%w: the storage that is configured as cell %s is that of cell %s", ErrMap,
			cell, d.Cell)
	}
	m := &Map{Version: d.Version, Fleet: d.Fleet, held: d.Held}
	for _, s := range d.Owners {
		if s.Partitions < 1 || s.Partitions > Partitions-len(m.owners) {
			return nil, fmt.Errorf("%w: the copy in cell %s has not %d partitions", ErrMap, cell, Partitions)
		}
		m.owners = append(m.owners, slices.Repeat([]string{s.Cell}, s.Partitions)...)
	}
	badHold := m.held != nil && slices.ContainsFunc(m.held.Partitions, outOfRange)
	if len(m.owners) != Partitions || m.Version == 0 || badHold {
		return nil, fmt.Errorf("%w: the copy in cell %s has not %d partitions", ErrMap, cell, Partitions)
	}
	return m, nil
}

func outOfRange(partition int) bool { return partition < 0 || partition >= Partitions }
