// Package model is the vocabulary of served models: tensors, what a model takes and
// returns, and why a request is refused.
package model
