//go:build !conformance

package e2e

// sharedCaches says that the shared pools keep no compiled kernels: see withoutCache.
const sharedCaches = false

// recordedWhenBorrowed are the programs of package cltest that TestRecordedPrograms runs on a borrowed
// device: without `kernel`, which compiles as long as the others together, and is recorded locally.
var recordedWhenBorrowed = []string{"event", "map", "memory"}
