module github.com/ojsengine/ojs/bench

go 1.26.0

replace github.com/ojsengine/ojs => ../

require (
	github.com/ThreeDotsLabs/watermill v1.5.1
	github.com/alitto/pond/v2 v2.7.1
	github.com/benbjohnson/clock v1.3.5
	github.com/golang-queue/queue v0.4.0
	github.com/ojsengine/ojs v0.0.0-00010101000000-000000000000
	github.com/panjf2000/ants/v2 v2.12.1
)

require (
	github.com/adhocore/gronx v1.20.4 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jpillora/backoff v1.0.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/sosodev/duration v1.4.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
