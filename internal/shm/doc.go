// Package shm provides ring buffers in shared memory: a pair of byte streams between two processes.
//
// A ring is a sealed memfd with one control page and two data areas, one for each direction. Each
// area is mapped twice, at adjacent addresses, so that every range of bytes up to the area's size
// is one slice, wherever it begins. docs/design/0001 specifies the layout;
// cmd/libsession/ring/ring.c implements it in C.
//
// # Use
//
// The producer obtains free space with [Ring.Reserve], writes into it and publishes it with
// [Ring.Commit]. The consumer obtains bytes with [Ring.Next], reads them in place and frees them
// with [Ring.Release]. The ring itself copies no data. A slice is valid until the Commit or Release
// that covers it, and never after [Ring.Unmap].
//
// # Concurrency
//
// On each end one goroutine at a time may produce and one at a time may consume, concurrently with
// each other. Any goroutine may call Close, which wakes the sleeping goroutines of both processes.
// Unmap may be called only after all other methods have returned.
//
// # Trust
//
// The other process may write any value at any place of the memory, at any time. Therefore each end
// keeps its own positions in private memory, reads each word of the control page once, and
// validates the value; an invalid value closes the ring with the reason [Corrupt]. The bytes in the
// areas can change while they are read, so a user copies a length before checking and using it. A
// sealed file cannot shrink, so no access can fault.
package shm
