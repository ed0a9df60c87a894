package storage

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"strings"
	"time"
)

// DocumentStore keeps small documents, each under a kind and a name: recurring jobs
// (KindCron), and what engines tell each other that is about no job (KindValue). Engines
// encode what they hold. A storage looks at nothing but the fields of Document. A durable
// storage keeps documents as it keeps jobs [values-6, fields-6]. The cost of a call grows
// with the documents that it names or returns, and only with the logarithm of those that
// are stored.
type DocumentStore interface {
	// PutDocuments stores documents of a kind, each under its name [cron-1, values-1]. A
	// document is stored if the stored one has its Version, 0 standing for none
	// [cron-1, cron-6]. AnyVersion stores it in any case [values-1]. A document without
	// Data deletes the stored one under the same condition [cron-2, values-1]. The result
	// has the new version of each document, or the version that was deleted [cron-1,
	// cron-2]. It is 0 for a document that has changed nothing, which keeps no other from
	// being stored [cron-1, cron-4]. A new version is above every version that a document
	// of the kind and name has had, deleted documents included [cron-3, durable-3]. No
	// name occurs twice in a call. A call that fails has changed nothing [values-8].
	PutDocuments(ctx context.Context, kind Kind, documents []Document) (versions []uint64, err error)

	// Documents returns documents of a kind in the order of their names, which is that of
	// their bytes [cron-2, values-2].
	Documents(ctx context.Context, kind Kind, q DocumentQuery) ([]Document, error)

	// DueDocuments returns up to max documents of a kind whose Due is set and not after
	// now, in the order of Due and, for the same time, of their names [cron-5]. It begins
	// with the first that comes after a document in this order: its Name and Due are all
	// that counts [cron-5]. If after is nil, it begins with the first of all [cron-5].
	// next is the Due of the first document in this order that comes after those
	// returned; zero: there is none [cron-5, race-6].
	DueDocuments(ctx context.Context, kind Kind, now time.Time, after *Document, max int) (
		due []Document, next time.Time, err error)
}

// Document is a small value that is stored by its kind and name.
type Document struct {
	Name    string
	Version uint64    // given by the storage, from 1 on [cron-1]
	Due     time.Time // when something is to happen to it; zero: never [cron-5, values-3]
	Data    []byte    // at most some hundred KiB [values-1]
}

// AnyVersion stores or deletes a document whichever version is stored.
const AnyVersion uint64 = math.MaxUint64

// DocumentQuery selects documents; the zero query selects the first of all.
type DocumentQuery struct {
	Names  []string // the documents of these names; nil: all [cron-2]
	Prefix string   // of the names [values-2]
	After  string   // begin after this name [cron-2, values-2]
	Limit  int      // most documents; 0 or more than 1000: 1000 [cron-2, cron-7, values-4]
}

// MaxDocuments is the most documents that Documents returns.
const MaxDocuments = 1000

// Most returns Limit, or what stands for it.
func (q *DocumentQuery) Most() int {
	if q.Limit <= 0 || q.Limit > MaxDocuments {
		return MaxDocuments
	}
	return q.Limit
}

// From is the first name in the order of names that the query may select.
func (q *DocumentQuery) From() string {
	if q.After != "" && q.After >= q.Prefix {
		return q.After + "\x00"
	}
	return q.Prefix
}

// Selects reports whether the query selects a name, but for its Limit.
func (q *DocumentQuery) Selects(name string) bool {
	return name > q.After && strings.HasPrefix(name, q.Prefix)
}

// Copy returns a document that shares nothing with d.
func (d *Document) Copy() Document {
	c := *d
	c.Data = bytes.Clone(d.Data)
	return c
}

// CompareDue orders documents by Due and, for the same time, by Name: the order of
// DueDocuments.
func (d *Document) CompareDue(to *Document) int {
	if c := d.Due.Compare(to.Due); c != 0 {
		return c
	}
	return cmp.Compare(d.Name, to.Name)
}
