//go:build !conformance

package pool_test

// removals is how many nodes TestRemovalsUnderLoad removes.
const removals = 3

// jobRounds is how often two jobs ask at once for more than there is.
const jobRounds = 200
