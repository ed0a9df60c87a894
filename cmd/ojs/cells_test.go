package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/ojsengine/ojs/fleet"
	"github.com/ojsengine/ojs/storage"
)

// Partitions move between files, and a move that has ended early is told to be repeated.
func TestMoveOfPartitions(t *testing.T) {
	first, address := newStorage(t, onSQLite)
	second, path := newStorage(t, onSQLite)
	run := func(line string) string {
		var out bytes.Buffer
		env := map[string]string{"OJS_STORAGE": address, "COLUMNS": "80"}
		p := &program{env: func(name string) string { return env[name] }, in: strings.NewReader(""),
			out: &out, errs: &out, clock: clock.New()}
		p.run(t.Context(), strings.Fields(line)[1:])
		return out.String()
	}
	cells := []fleet.Cell{{Name: "eu-1", Store: first}, {Name: "eu-2", Store: second}}
	f, err := fleet.New[any](fleet.Config{Cells: cells, Serve: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string]string{
		"the storage is of no fleet": "--from eu-1 --to eu-2",
		"missing flags: --to":        "--from eu-1",
	} {
		if out := run("ojs cells move " + args); !strings.Contains(out, want) {
			t.Errorf("%s: %s", args, out)
		}
	}
	if _, err := f.Map(t.Context()); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	other := " --cell eu-2=" + path
	for want, args := range map[string]string{
		"eu-2 has partitions, and is not configured": "--from eu-1 --to eu-1",
		`"z" is no cell`:                     "--from eu-1 --to z" + other,
		`--from "z" is no cell`:              "--from z --to eu-1" + other,
		`--ranges "5-2": use ranges from 0`:  "--ranges 0,5-2 --to eu-2" + other,
		`--ranges "4096": use ranges from 0`: "--ranges 4096 --to eu-2" + other,
		"the address is of no database":      "--from eu-1 --to eu-2 --cell eu-2=memory",
		"no such file":                       "--from eu-1 --to eu-2 --cell eu-2=" + none,
		"can't be used together":             "--from eu-1 --key k --to eu-2" + other,
		"fix: run the command again":         "--ranges 0-9,12 --to eu-2 --within 300ms" + other,
	} {
		if out := run("ojs cells move " + args); !strings.Contains(out, want) {
			t.Errorf("%s: %s", args, out)
		}
	}
	out := run("ojs cells")
	if !strings.Contains(out, "10-11,13-2047") || !strings.Contains(out, "0-9,12,2048-4095") {
		t.Errorf("the cells are:\n%s", out)
	}
	// The first step of a strict move, whose program then dies.
	_ = run("ojs cells move --strict --ranges 20-21 --to eu-2 --within 1ns" + other)
	if out := run("ojs cells -o json"); strings.Contains(out, "moving") {
		t.Errorf("the hold is not released: %s", out)
	}
}

// Ranges are read as they are written.
func TestRanges(t *testing.T) {
	for _, list := range [][]int{{0}, {0, 1, 2}, {3, 5, 6, 9}, {0, 4095}} {
		v := &cellsMoveVerb{Ranges: ranges(list)}
		if got, err := v.partitions(nil, ""); err != nil || !slices.Equal(got, list) {
			t.Errorf("%v: %q, %v, %v", list, v.Ranges, got, err)
		}
	}
}

// A proposal of a map, and a hold, are marked.
func TestMarksOfCells(t *testing.T) {
	sh := newShell(t, onMemory, false)
	for want, data := range map[string]string{
		"proposed, not in force": `{"fleet":"F","version":1,"cell":"a",
			"owners":[{"cell":"a","partitions":4096}]}`,
		"a strict move of 2 to b holds enqueues": `{"fleet":"F","version":3,"cell":"a",
			"owners":[{"cell":"a","partitions":4095},{"cell":"b","partitions":1}],
			"held":{"partitions":[1,2],"to":"b","owner":"x"}}`,
	} {
		docs := []storage.Document{{Name: "fleet/map", Version: storage.AnyVersion, Data: []byte(data)}}
		if _, err := sh.shop.st.PutDocuments(t.Context(), storage.KindValue, docs); err != nil {
			t.Fatal(err)
		}
		if out := sh.run("ojs cells"); !strings.Contains(out, want) {
			t.Errorf("the cells are:\n%s", out)
		}
	}
}
