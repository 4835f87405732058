//go:build !conformance

package e2e

// sharedCaches says that the shared pools keep no compiled kernels: see withoutCache.
const sharedCaches = false
