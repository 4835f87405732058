// Package rewrite makes a WebAssembly module fit for snapshots and limits: what a
// module's start would do is taken out for the host to do once, its state becomes
// reachable, and its code counts what it executes.
//
// The file is hostile: every length and index is checked before it is believed,
// and what can't be handled is refused with its name. What is accepted still has
// to be compiled: types are left to the engine's own validation.
package rewrite

import (
	"errors"
	"fmt"
)

// Reserved begins the names of everything that is exported here. A module that
// uses such a name itself is refused.
const Reserved = "outboard:"

// The names of what rewriting adds.
const (
	// StartName is the export of the function that was the start function.
	StartName = Reserved + "start"
	// MeterName is the export of the meter: a mutable i32 that counts down.
	MeterName = Reserved + "meter"
)

// Yield is the size, in bytes, that a module asks its memory to grow to when its
// meter is below zero. No memory may have it, so that the request always comes
// to the host and means nothing else.
const Yield = 1 << 32

// DefaultMaxSize bounds a module's file.
const DefaultMaxSize = 64 << 20

// Options say what to put in.
type Options struct {
	// Unmetered leaves the code as it is: neither deadline nor fuel can stop it.
	Unmetered bool
	// KeepJumps leaves jumps through a table as Go makes them. It is there to measure
	// and to compare.
	KeepJumps bool
	// MaxSize bounds the file in bytes. 0 means DefaultMaxSize.
	MaxSize int
}

// Limits are the sizes of a memory in pages of 64 KiB.
type Limits struct{ Min, Max uint32 }

// A Segment is bytes that belong into memory before the start function runs.
type Segment struct {
	Offset uint32
	Bytes  []byte
}

// A Global is a mutable global of the module's own.
type Global struct {
	Index uint32
	Name  string // of its export
}

// A Result is a rewritten module.
type Result struct {
	// Code is the file for the engine.
	Code []byte
	// Memory is what the module declared. The rewritten one has no maximum, so
	// that the host can always shrink it: the host must hold to Max.
	Memory Limits
	// Data are the active segments, in their order. Their bytes are those of the
	// file that was given.
	Data []Segment
	// Globals are the mutable globals, without the meter.
	Globals []Global
	// Start says that there was a start function.
	Start bool
	// Checks is how many checks of the meter the code has.
	Checks int
}

// Module rewrites a file.
func Module(file []byte, o Options) (*Result, error) {
	if o.MaxSize == 0 {
		o.MaxSize = DefaultMaxSize
	}
	if len(file) > o.MaxSize {
		return nil, fmt.Errorf("module of %d bytes: the limit is %d", len(file), o.MaxSize)
	}
	m, err := parse(file)
	if err != nil {
		return nil, err
	}
	if !o.KeepJumps {
		m.straighten()
	}
	e := &emitter{m: m, metered: !o.Unmetered, w: walker{m: m, free: make([]toll, m.functions)}}
	code, err := e.code()
	if err != nil {
		return nil, fmt.Errorf("code: %w", err)
	}
	if m.exports == 0 {
		return nil, errors.New("exports: the module has none, so nothing in it can be called")
	}
	return &Result{
		Code:    e.file(code),
		Memory:  m.memory,
		Data:    m.active(),
		Globals: m.state,
		Start:   m.start != nil,
		Checks:  e.checks,
	}, nil
}
