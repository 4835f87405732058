// Package registry tests the client of OCI registries against a registry that this
// project did not write.
package registry
