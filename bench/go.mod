module github.com/ojsengine/ojs/bench

go 1.26.0

replace (
	github.com/ojsengine/ojs => ../
	github.com/ojsengine/ojs/storage/postgres => ../storage/postgres
	github.com/ojsengine/ojs/storage/sqlite => ../storage/sqlite
)

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/alitto/pond/v2 v2.7.1
	github.com/benbjohnson/clock v1.3.5
	github.com/golang-queue/queue v0.4.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/mikestefanello/backlite v0.6.0
	github.com/ojsengine/ojs v0.1.0
	github.com/ojsengine/ojs/storage/postgres v0.1.0
	github.com/ojsengine/ojs/storage/sqlite v0.1.0
	github.com/panjf2000/ants/v2 v2.12.1
	github.com/riverqueue/river v0.51.1
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.51.1
	maragu.dev/goqite v0.3.1
	modernc.org/sqlite v1.37.1
)

require (
	github.com/adhocore/gronx v1.20.4 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jpillora/backoff v1.0.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/go-strftime v0.1.9 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/riverqueue/river/riverdriver v0.51.1 // indirect
	github.com/riverqueue/river/rivershared v0.51.1 // indirect
	github.com/riverqueue/river/rivertype v0.51.1 // indirect
	github.com/sosodev/duration v1.4.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	golang.org/x/exp v0.0.0-20250408133849-7e4ce0ab07d0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.35.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	modernc.org/libc v1.65.7 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
	zombiezen.com/go/sqlite v1.4.2 // indirect
)
