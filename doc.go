// Package outboard is the vocabulary of Outboard: one pool of the accelerators,
// memory and data that many machines own, lent to work that runs on other
// machines.
//
// It declares the names that every other package shares (nodes, devices, leases,
// selectors, sizes, errors) and nothing that does I/O: it imports only the
// standard library, and every plane may import it.
package outboard
