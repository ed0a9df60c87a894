// Package fleet is one front for several engines, each on a database of its own. It is
// for programs whose jobs are more than one database can take.
//
//	f, err := fleet.New[any](fleet.Config{
//		Cells:       []fleet.Cell{{Name: "a", Store: a}, {Name: "b", Store: b}, {Name: "c", Store: c}},
//		Concurrency: 200, // attempts at once in this process, over all cells
//	})
//	f.Handle("invoice.send", send)                             // in every cell
//	f.Enqueue(ctx, "invoice.send", inv, fleet.WithCell(tenant)) // in the cell of the tenant
//	f.Enqueue(ctx, "thumbnail", img)                           // in any cell that answers
//	err = f.Run(ctx)
//
// # Cells
//
// A cell is a complete engine on a storage: a database, or a schema of one. Everything
// that engines promise holds inside a cell. Across cells there are no transactions, no
// uniqueness, no order, no limits and no workflows. Jobs that need one another share a
// key of WithCell.
//
// # Where a job goes
//
// A key belongs to one of 4,096 partitions, and a partition to a cell. The key of a job
// is that of WithCell, else that of Config.Key. Without either it is what needs one cell:
// the job's ordering key, its rate limit key, its unique policy, the jobs that it waits
// for. If these lie in different cells, the enqueue fails with ErrCells and names both. A
// job with WithID alone lies in the cell of its id. Each cell is fair to all its jobs, so
// a fairness key needs no cell.
//
// A job without a key goes to a cell that has answered lately. If the enqueue fails
// there, it goes on to the next cell under the same id. So it fails only if every cell
// does. If a cell has stored the job and its answer was lost, the job runs in two cells,
// under one id.
//
// All jobs of one EnqueueMany go to one cell, in one step of its storage.
//
// The id of a job carries its partition. Get, Wait and Cancel ask the cell of the
// partition first, and the others if the job is not there.
//
// # The map
//
// The map says which partition is in which cell. The first program makes it, with equal
// shares for its cells, and each cell stores a copy. From then on programs follow the
// stored map. The fleet refuses a program whose cells do not fit it with ErrMap: one that
// lacks a cell which has partitions, that has swapped the storages of two cells, or that
// names a storage of another fleet. Only Cells.Move changes the map.
//
//  1. Versions of the map rise by one. The first cell of a version, by name, decides by a
//     compare-and-swap which version follows.
//  2. A process puts a job with a key into a cell only if the cell's own copy gives it
//     the partition. The process has read that copy within the last 10 s.
//  3. In a strict move, at most one cell's copy gives out the partition at any moment.
//     Before the next cell's copy does, every job of the partition in the last one has
//     ended or has been moved.
//  4. A reader that finds an older copy replaces it by the newest one it knows.
//  5. The attempts of all cells in a process are never more than Config.Concurrency.
package fleet
