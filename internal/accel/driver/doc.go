// Package driver binds the real driver of an accelerator API, a shared library
// of the system, without cgo.
//
// # Memory
//
// A Go pointer turned into a uintptr keeps nothing alive and does not follow a
// stack that moves. So nothing on a goroutine's stack is ever handed to a
// driver: what crosses is memory from a Frame or from Alloc, which lies outside
// Go's heap, or a Go object that a runtime.Pinner holds until the driver is done.
//
// # Concurrency
//
// A Library and its Tables may be used by any number of goroutines. A call
// occupies its thread until the driver returns.
package driver
