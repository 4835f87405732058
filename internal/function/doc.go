// Package function runs WebAssembly functions whose every call begins with the same
// memory.
//
// # The model
//
// Runtime.Deploy rewrites and compiles a module, runs its start function and its
// initialisation once, and takes a snapshot of its memory and globals: the image.
// A slot holds an instance: an address range with a copy-on-write mapping of the
// image, and the compiled code's state. A call acquires a slot, runs in it and resets
// it: written pages are restored from the image, grown memory is dropped, globals are
// set. So no state of a call reaches the next one, and a call that trapped, ran too
// long or exited leaves a slot as good as any other.
//
// # The interface of a module
//
// A core module for WASI preview 1, a "reactor": it may export _initialize, has no
// use for _start, and exports one function without parameters for each entry, by
// default "handle". Its result, an i32, is 0 when the response is the answer and
// something else when the response is an error's text. It imports from "outboard":
//
//	request_size() -> i32                          bytes of the request
//	request_read(to, size, offset i32) -> i32      copies a part of it, returns how much
//	response_write(from, size i32) -> i32          appends to the response; 0, or 1 if it would be too large
//
// It may also import resources, arenas and metadata of the request: see guest/c/outboard.h.
//
// If it exports outboard_reseed, a function of one i64, the runtime calls that before each call
// with a random number: the state of its own generators is in the image and otherwise the same for
// every call.
//
// # Arenas
//
// An Arena is memory that several functions see at the same time, so that a value is passed by its
// offset. A module that exports outboard_arena has a window: a part of its memory, allocated by
// itself before the image is taken, over which the arena of a call is mapped. The mapping stays
// with the slot, and calls with the same arena prefer the slot. A function that may only read has a
// private mapping: its writes are dropped by the reset. Arenas that a call imports by name lie
// behind the call's own, and are unmapped at its end. A call without an arena finds zeroes in the
// window.
//
// # Imports
//
// The Resources of the request resolve names; a call's imports are released at its end at the
// latest. A handle is an index in a table of the call. Waiting for a resource ends with the call's
// deadline.
//
// # Limits
//
// Compiled WebAssembly can't be preempted: while it runs, Go's collector and with it
// the whole process would wait for it. So the rewritten code counts instructions and
// calls the host after every few hundred thousand. There the deadline and the
// fuel are checked; when one is used up the code traps. Nothing is written to an
// instance from outside, so no late signal can reach the next call. Host functions
// charge the meter for every loop over a call's data.
//
// # Concurrency
//
// A Runtime and a Function may be used by many goroutines. Runtime.Close and Function.Close wait
// for running calls.
package function
