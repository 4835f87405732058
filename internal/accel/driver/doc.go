// Package driver binds the real driver of an accelerator API, a shared library of the system,
// without cgo.
//
// # Memory
//
// A Go pointer converted to a uintptr keeps nothing alive and does not follow a stack that moves.
// So the address of data on a goroutine's stack is never passed to a driver, only the address of
// memory from a Frame or from Alloc, which lies outside Go's heap, or of a Go object that a
// runtime.Pinner pins until the driver is done.
//
// # Concurrency
//
// A Library and its Tables may be used by any number of goroutines. A call occupies its thread
// until the driver returns.
package driver
