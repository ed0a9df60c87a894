// Package browsertest shows the dashboard in a real Chromium: every page in both themes
// at three widths, with axe (testdata/axe.min.js, version 4.10.3, Mozilla Public License
// 2.0, unchanged). It is a module of its own, outside of the workspace, so that chromedp
// is in no user's dependencies:
//
//	cd dashboard/browsertest && GOWORK=off go test .
//
// Without Chromium the tests are skipped, unless CI is set. OJS_SHOTS names a directory
// for pictures of all pages, of which overview-light-1280.png is docs/dashboard.png.
package browsertest
