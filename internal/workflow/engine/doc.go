// Package engine runs workflows so that no node's death loses one: it drives the
// pure core over a log.
package engine
