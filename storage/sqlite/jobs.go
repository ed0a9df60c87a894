package sqlite

import (
	"bytes"
	"fmt"
	"strings"

	zombiezen "zombiezen.com/go/sqlite"

	"github.com/ojsengine/ojs/storage/keyed"
)

// columns are those of the view ojs_jobs: members of a job on the wire.
const columns = "id type version queue state priority attempt args meta progress error errors result " +
	"rate_limit fairness dependencies created_at enqueued_at scheduled_at expires_at started_at " +
	"next_retry_at completed_at cancelled_at discarded_at dead_lettered_at"

// Register has SQL on a connection read the jobs of its file. The connection is one of
// yours, or that of Within. It has the temporary view ojs_jobs then:
//
//	SELECT queue, count(*) FROM ojs_jobs WHERE state = 'discarded' GROUP BY queue
//
// The columns are members of a job on the wire: id, type, version, queue, state,
// priority, attempt, args, meta, progress, error, errors, result, rate_limit, fairness,
// dependencies, and the times created_at, enqueued_at, scheduled_at, expires_at,
// started_at, next_retry_at, completed_at, cancelled_at, discarded_at and
// dead_lettered_at. Objects and lists are JSON. The column job has the job as a whole. Of
// a job that does not decode, all columns are NULL. A query reads every job: no index
// helps it. Jobs in the quarantine are not in the view.
func Register(conn *zombiezen.Conn) error {
	var last, text []byte // a row asks for each of its columns
	err := conn.CreateFunction("ojs_job", &zombiezen.FunctionImpl{
		NArgs: 1, Deterministic: true, AllowIndirect: true,
		Scalar: func(_ zombiezen.Context, args []zombiezen.Value) (zombiezen.Value, error) {
			if v := args[0].Blob(); text == nil || !bytes.Equal(v, last) {
				last, text = bytes.Clone(v), []byte{}
				if r, err := keyed.ReadJob(v); err == nil {
					text, _ = r.JobInfo.MarshalJSON()
				}
			}
			if len(text) == 0 {
				return zombiezen.Value{}, nil
			}
			return zombiezen.TextValue(string(text)), nil
		}})
	if err != nil {
		return wrap(err)
	}
	from, to := keyed.Jobs()
	var sql strings.Builder
	sql.WriteString("CREATE TEMP VIEW IF NOT EXISTS ojs_jobs AS SELECT ")
	for _, c := range strings.Fields(columns) {
		fmt.Fprintf(&sql, "job ->> '%s' AS %s, ", c, c)
	}
	fmt.Fprintf(&sql, "job FROM (SELECT ojs_job(v) AS job FROM main.ojs_kv WHERE k >= x'%x' AND k < x'%x')",
		from, to)
	return wrap(run(conn, sql.String()))
}
