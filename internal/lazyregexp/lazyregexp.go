// Package lazyregexp compiles the regular expressions of package variables at their first use, so
// that a command or a helper process does not pay at its start for patterns that it never matches.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// Regexp is a regular expression that is compiled at its first use. Its methods are those of
// regexp.Regexp and are safe for concurrent use.
type Regexp struct{ compiled func() *regexp.Regexp }

// New returns the regular expression pattern. In test programs New compiles it at once and panics
// if it is not valid; elsewhere its first use does.
func New(pattern string) *Regexp {
	r := &Regexp{compiled: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })}
	if inTest() {
		r.compiled()
	}
	return r
}

// inTest reports whether this process is a test program. It does not call testing.Testing, which
// would link package testing into the program.
func inTest() bool { return len(os.Args) > 0 && strings.HasSuffix(os.Args[0], ".test") }

// MatchString calls the method of regexp.Regexp.
func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// FindIndex calls the method of regexp.Regexp.
func (r *Regexp) FindIndex(b []byte) []int { return r.compiled().FindIndex(b) }

// FindStringSubmatch calls the method of regexp.Regexp.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

// FindStringSubmatchIndex calls the method of regexp.Regexp.
func (r *Regexp) FindStringSubmatchIndex(s string) []int {
	return r.compiled().FindStringSubmatchIndex(s)
}

// FindAllStringSubmatchIndex calls the method of regexp.Regexp.
func (r *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return r.compiled().FindAllStringSubmatchIndex(s, n)
}

// ReplaceAllString calls the method of regexp.Regexp.
func (r *Regexp) ReplaceAllString(src, repl string) string {
	return r.compiled().ReplaceAllString(src, repl)
}
