package dsl

import "github.com/itchyny/gojq"

// Expr is an expression that compiled.
type Expr struct {
	// Text is what the file has.
	Text string
	code *gojq.Code
}

// Template is a JSON value in which texts may be expressions.
type Template struct {
	value any
}
