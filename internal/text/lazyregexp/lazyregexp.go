// Package lazyregexp compiles regular expressions when they are first used. A worker starts
// its own executable for each program of a job, and most of these processes match nothing.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that compiles an expression at its first call. It panics then if
// the expression is malformed, as [regexp.MustCompile] does.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
