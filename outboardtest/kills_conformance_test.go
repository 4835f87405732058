//go:build conformance

package outboardtest_test

// killedRanks is how often a rank is killed.
const killedRanks = 100

// killedNodes is how often a node is killed.
const killedNodes = 100
