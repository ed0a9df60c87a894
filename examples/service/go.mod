module github.com/ojsengine/ojs/examples/service

go 1.26.0

replace (
	github.com/ojsengine/ojs => ../..
	github.com/ojsengine/ojs/dashboard => ../../dashboard
	github.com/ojsengine/ojs/prometheus => ../../prometheus
	github.com/ojsengine/ojs/storage/postgres => ../../storage/postgres
)

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/ojsengine/ojs v0.1.0
	github.com/ojsengine/ojs/dashboard v0.1.0
	github.com/ojsengine/ojs/prometheus v0.1.0
	github.com/ojsengine/ojs/storage/postgres v0.1.0
	github.com/prometheus/client_golang v1.23.2
)

require (
	github.com/adhocore/gronx v1.20.4 // indirect
	github.com/benbjohnson/clock v1.3.5 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.66.1 // indirect
	github.com/prometheus/procfs v0.16.1 // indirect
	github.com/sosodev/duration v1.4.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.35.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/protobuf v1.36.8 // indirect
)
