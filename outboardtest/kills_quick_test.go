//go:build !conformance

package outboardtest_test

// killedRanks is how often a rank is killed; with the tag conformance more often.
const killedRanks = 3

// killedNodes is how often a node is killed; with the tag conformance more often.
const killedNodes = 2
