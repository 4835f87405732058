// Package report summarises traces and writes them in the formats of other programs.
//
// Each report takes one pass over the trace, in memory that depends on the number of functions and
// threads, not on the number of calls.
package report
