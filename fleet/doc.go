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
// A job without a key goes to a cell that has answered lately. If the storage fails, or
// the job's queue is full there, the job goes on to the next cell under the same id. It
// is refused only if every cell fails, or for what it is. If a cell has stored the job
// and its answer was lost, the job runs in two cells, under one id.
//
// All jobs of one EnqueueMany go to one cell, in one step of its storage.
//
// The id of a job carries its partition. An id of WithID that carries another one than
// the job's key is refused. Get, Wait and Cancel ask the cell of the partition first, and
// the others if the job is not there. A cell that does not answer is asked last.
//
// # The map
//
// The map says which partition is in which cell. The first program makes it, with equal
// shares for its cells, and each cell stores a copy. From then on programs follow the
// stored map. The fleet refuses a program whose cells do not fit it with ErrMap: one that
// lacks a cell which has partitions, that has swapped the storages of two cells, or that
// names a storage of another fleet.
//
// Fleet.Move and MovePartitions give partitions to another cell. Jobs that are stored end
// in the cell where they are, and ids find them there. After a plain move, jobs of a key
// may run in both cells for a while. A strict move lets the enqueues of a key wait until
// its jobs in the other cells have ended.
//
//  1. All cells of the first map have stored it, or its proposal, before a job is placed
//     by it. A cell that gets partitions by a move has stored the map before.
//  2. A process puts a job with a key into a cell only if the cell's own copy gives it
//     the partition, and no strict move holds it. The process has read that copy within
//     the last 10 s.
//  3. A reader that finds an older copy replaces it by the newest one it knows.
//  4. The attempts of all cells in a process are never more than Config.Concurrency.
package fleet
