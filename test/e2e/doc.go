// Package e2e tests the outboard program end to end: real nodes, third-party programs,
// and nodes that are killed.
//
// The quick ones run in `make test`. Those of the build tag conformance run in
// `make conformance`.
package e2e
