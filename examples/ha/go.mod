module github.com/ojsengine/ojs/examples/ha

go 1.26.0

replace (
	github.com/ojsengine/ojs => ../..
	github.com/ojsengine/ojs/storage/postgres => ../../storage/postgres
)

require (
	github.com/benbjohnson/clock v1.3.5
	github.com/jackc/pgx/v5 v5.12.0
	github.com/ojsengine/ojs v0.1.0
	github.com/ojsengine/ojs/storage/postgres v0.1.0
)

require (
	github.com/adhocore/gronx v1.20.4 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/sosodev/duration v1.4.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
