// Package enginetest is the suite that holds every engine to the contract of package engine.
package enginetest
