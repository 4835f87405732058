// Package e2e tests the outboard program itself: real nodes, real programs that
// nobody here wrote, real deaths.
//
// The quick ones run in `make test`. Those of the build tag conformance run in
// `make conformance`.
package e2e
