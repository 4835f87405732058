// Package digits tests the example that recognizes digits.
package digits
