// Package shm is a pair of byte streams between two processes over one piece of
// shared memory: the ring.
//
// A ring is a sealed memfd with one control page and two data areas, one for
// each direction. Each area is mapped twice in a row, so that every stretch of
// bytes up to the area's size is one slice, wherever it begins. The layout is
// that of docs/design/0001; cmd/libsession/ring/ring.c is the same in C.
//
// # Use
//
// The producer asks for room with [Ring.Reserve], writes into it and publishes
// it with [Ring.Commit]. The consumer asks for bytes with [Ring.Next], reads
// them in place and gives them back with [Ring.Release]. Nothing is copied by
// the ring itself. A slice is valid until the Commit or Release that covers it,
// and never after [Ring.Unmap].
//
// # Concurrency
//
// On each end one goroutine at a time may produce and one at a time may consume;
// the two do not disturb each other. Close may be called from anywhere and wakes
// all who sleep, in both processes. Unmap is for when all of them have returned.
//
// # Trust
//
// The other process may write anything anywhere in the memory, at any time. So
// each end keeps its own positions in private memory, reads each word of the
// control page once, and checks what it read; a peer that breaks the rules
// closes the ring with the reason [Corrupt]. The bytes in the areas can change
// while they are read: whoever acts on a length in them copies it first. A
// sealed file cannot shrink, so that no access can fault.
package shm
