// Package ctest tests the session library of drivers from Go, also under sanitizers.
package ctest
