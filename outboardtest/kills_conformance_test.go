//go:build conformance

package outboardtest_test

// killedRanks is how often a rank is killed.
const killedRanks = 100
