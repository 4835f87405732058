//go:build conformance

package pool_test

// removals is how many nodes TestRemovalsUnderLoad removes.
const removals = 100

// jobRounds is how often two jobs ask at once for more than there is.
const jobRounds = 1000
