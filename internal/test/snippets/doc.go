// Package snippets tests that each Go block of the README and of docs/ compiles, and that
// the links of all documents lead somewhere.
//
// A block is a whole program, declarations, statements, or statements followed by
// declarations. Statements may use the names of usual (snippets_test.go) and those that
// the file testdata/PAGE.txt declares for the page. "..." stands for code that does not
// matter. The imports of a block follow from the names of the packages that it uses.
//
// A block of another library's code has the line
//
//	<!-- not compiled: REASON -->
//
// before it. The test lists these blocks. After a change of another module, run the tests
// with -count=1: the test cache does not see it.
package snippets
