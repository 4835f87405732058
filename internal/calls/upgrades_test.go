//go:build !conformance

package calls_test

// upgrades is how many there are in a row.
const upgrades = 10
