// Package enrollment tests the example of a course enrollment.
package enrollment
