package optimize

import (
	"errors"
	"fmt"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// Reserved is the prefix of the names of everything that Module exports. A module that uses such a
// name itself is refused.
const Reserved = "outboard:"

// The names of the exports that Module adds.
const (
	// StartName is the export of the function that was the start function.
	StartName = Reserved + "start"
	// MeterName is the export of the meter: a mutable i32 that counts down.
	MeterName = Reserved + "meter"
)

// Yield is the size, in bytes, that a module grows its memory to when its meter is below zero. No
// memory may have it, so the request always reaches the host and means nothing else.
const Yield = 1 << 32

// DefaultMaxSize bounds a module's file.
const DefaultMaxSize = 64 << 20

// Options configure the rewriting of a module.
type Options struct {
	// Unmetered leaves the meter checks out: neither deadline nor fuel can stop the code.
	Unmetered bool
	// KeepDispatchLoops leaves the passes out. It serves to measure and to compare.
	KeepDispatchLoops bool
	// MaxSize bounds the file in bytes. 0 means DefaultMaxSize.
	MaxSize int
	// MaxCompileCost bounds Result.CompileCost. 0 means DefaultMaxCompileCost.
	MaxCompileCost int64
}

// Limits are the sizes of a memory in pages of 64 KiB.
type Limits struct{ Min, Max uint32 }

// Segment is an active data segment: bytes that the host writes to the memory before the start
// function runs.
type Segment struct {
	Offset uint32
	Bytes  []byte
}

// Global is a mutable global of the module's own.
type Global struct {
	Index uint32
	Name  string // of its export
}

// Result is a rewritten module.
type Result struct {
	// Code is the file for the engine.
	Code []byte
	// Memory are the limits that the module declared. The rewritten module has no maximum, so that
	// the host can always shrink the memory: the host must enforce Max.
	Memory Limits
	// Data are the active segments, in their order. Their bytes are parts of the file.
	Data []Segment
	// Globals are the mutable globals, without the meter.
	Globals []Global
	// Start says that there was a start function.
	Start bool
	// Checks is how many meter checks the code has.
	Checks int
	// Work is the work of the passes, in units of about one byte that a pass read or wrote.
	Work int64
	// CompileCost estimates the time that the engine takes to compile the code, in microseconds of
	// a processor.
	CompileCost int64
}

// Module rewrites a file.
func Module(file []byte, o Options) (*Result, error) {
	if o.MaxSize == 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.MaxCompileCost == 0 {
		o.MaxCompileCost = DefaultMaxCompileCost
	}
	if len(file) > o.MaxSize {
		return nil, fmt.Errorf("module of %d bytes: the limit is %d", len(file), o.MaxSize)
	}
	m, err := parse(file)
	if err != nil {
		return nil, err
	}
	var work int64
	var plain []byte
	if !o.KeepDispatchLoops {
		plain = m.sections[wasmbin.SectionCode]
		work = m.optimizeBodies()
	}
	e, code, err := instrument(m, o)
	if errors.Is(err, errTooCostly) && plain != nil {
		m.sections[wasmbin.SectionCode] = plain // the passes may have made it too costly
		e, code, err = instrument(m, o)
	}
	if err != nil {
		return nil, fmt.Errorf("code: %w", err)
	}
	if m.exports == 0 {
		return nil, errors.New("exports: the module has none, so nothing in it can be called")
	}
	return &Result{
		Code:    e.emitFile(code),
		Memory:  m.memory,
		Data:    m.activeSegments(),
		Globals: m.mutableGlobals,
		Start:   m.start != nil,
		Checks:  e.checks,
		Work:    work,

		CompileCost: e.cost,
	}, nil
}

// instrument inserts the meter checks.
func instrument(m *module, o Options) (e *emitter, code []byte, err error) {
	e = &emitter{m: m, metered: !o.Unmetered, maxCost: o.MaxCompileCost, scanner: bodyScanner{m: m, entryCosts: make([]entryCost, m.functions)}}
	code, err = e.emitCode()
	return e, code, err
}
