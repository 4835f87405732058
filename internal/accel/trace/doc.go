// Package trace writes and reads recordings of the costs of a program's calls of an accelerator
// API: the file format of `outboard run --trace`.
//
// A trace is a [Header] and a stream of [Record], one for each call, in the order in which the
// calls began. docs/traces.md specifies the bytes. A [Reader] needs memory for one block, whatever
// the trace's length; it refuses files that are no traces, and reads a file that was cut off up to
// its last whole block.
//
// A call is measured on the aligned clock of the trace: nanoseconds of CLOCK_MONOTONIC of the
// program's machine since [Header.Origin].
//
//	thread     ──gap──┤begin                                            end├──gap──
//	                  │encode│ · · · wire forward · · │     │ wire backward │
//	                         │◄─────── blocked (only waited-for calls) ────►│
//	worker                                            │execute│
//	device                                                  │start── device time ──│
//
// The package also reads the messages of a session back into events that name their call and
// fields ([Read]); both are driven by the table that apigen makes from an API's description, so
// that the package knows no API itself.
package trace
