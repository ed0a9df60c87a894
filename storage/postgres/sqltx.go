package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ojsengine/ojs/storage"
)

// SQLTx is a transaction over database/sql: a *sql.Tx, as sqlc uses, a transaction of
// sqlx or ent, the field Tx of a bun.Tx, or the ConnPool of GORM within a transaction.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// WithSQLTx is WithTx for a transaction over database/sql. The driver has to be one for
// PostgreSQL that speaks its protocol: the stdlib package of pgx, or lib/pq. WithSQLTx
// neither commits the transaction nor rolls it back.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	_, err = eng.Enqueue(postgres.WithSQLTx(ctx, tx), "welcome", Welcome{Account: id})
//	...
//	err = tx.Commit()
//
// With a nil transaction calls fail, as with WithTx. The database of the transaction has
// to be the storage's. Enqueues set savepoints with the name ojs.
func WithSQLTx(ctx context.Context, tx SQLTx) context.Context {
	return storage.WithTx(ctx, tx)
}

// inSQLTx makes statements in a transaction over database/sql. Arguments go as text,
// which all drivers pass on as it is.
type inSQLTx struct{ tx SQLTx }

func (q inSQLTx) begin(ctx context.Context) (transaction, error) {
	_, err := q.tx.ExecContext(ctx, "SAVEPOINT ojs")
	return q, err
}

func (q inSQLTx) commit(ctx context.Context) error {
	_, err := q.tx.ExecContext(ctx, "RELEASE SAVEPOINT ojs")
	return err
}

func (q inSQLTx) rollback(ctx context.Context) error {
	for _, statement := range []string{"ROLLBACK TO SAVEPOINT ojs", "RELEASE SAVEPOINT ojs"} {
		if _, err := q.tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (q inSQLTx) query(ctx context.Context, list ...sent) error {
	for _, m := range list {
		if err := q.send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (q inSQLTx) send(ctx context.Context, m sent) error {
	texts, err := sqlArgs(m.args)
	if err != nil {
		return err
	}
	if m.read == nil {
		_, err = q.tx.ExecContext(ctx, m.sql, texts...)
		return err
	}
	result, err := q.tx.QueryContext(ctx, m.sql, texts...)
	if err != nil {
		return err
	}
	defer result.Close()
	if err := m.read(result); err != nil {
		return err
	}
	return result.Err()
}

// sqlArgs makes arrays of the database's of slices. A nil slice is NULL.
func sqlArgs(args []any) ([]any, error) {
	texts, arrays := slices.Clone(args), pgtype.NewMap()
	for i, arg := range args {
		switch arg := arg.(type) {
		case nil, string, bool, int64, float64:
		case int:
			texts[i] = int64(arg)
		default:
			of, known := arrays.TypeForValue(arg)
			if !known {
				return nil, fmt.Errorf("ojs: postgres: no text for an argument of type %T", arg)
			}
			text, err := arrays.Encode(of.OID, pgtype.TextFormatCode, arg, nil)
			if err != nil {
				return nil, fmt.Errorf("ojs: postgres: an argument of type %T: %w", arg, err)
			}
			if texts[i] = nil; text != nil {
				texts[i] = string(text)
			}
		}
	}
	return texts, nil
}
