// Package comingfrom holds the snippets of docs/coming-from.md, compiled and run as
// Examples.
package comingfrom
