module github.com/ojsengine/ojs/dashboard/browsertest

go 1.26.0

replace (
	github.com/ojsengine/ojs => ../..
	github.com/ojsengine/ojs/dashboard => ..
)

require (
	github.com/chromedp/cdproto v0.0.0-20250803210736-d308e07a266d
	github.com/chromedp/chromedp v0.14.2
	github.com/ojsengine/ojs v0.1.0
	github.com/ojsengine/ojs/dashboard v0.1.0
)

require (
	github.com/adhocore/gronx v1.20.4 // indirect
	github.com/benbjohnson/clock v1.3.5 // indirect
	github.com/chromedp/sysutil v1.1.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/gobwas/pool v0.2.1 // indirect
	github.com/gobwas/ws v1.4.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/sosodev/duration v1.4.0 // indirect
	golang.org/x/sys v0.34.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
