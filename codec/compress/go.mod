module github.com/ojsengine/ojs/codec/compress

go 1.26.0

require (
	github.com/klauspost/compress v1.18.0
	github.com/ojsengine/ojs v0.1.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/sosodev/duration v1.4.0 // indirect
)
