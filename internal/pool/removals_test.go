//go:build !conformance

package pool_test

// removals is how many nodes TestRemovalsUnderLoad removes.
const removals = 3
