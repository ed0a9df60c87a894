module github.com/ojsengine/ojs/dashboard

go 1.26.0

require (
	github.com/benbjohnson/clock v1.3.5
	github.com/google/uuid v1.6.0
	github.com/ojsengine/ojs v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/adhocore/gronx v1.20.4 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/sosodev/duration v1.4.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
