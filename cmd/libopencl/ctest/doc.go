// Package ctest tests the driver library of OpenCL from Go, also under sanitizers.
package ctest
