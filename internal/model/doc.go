// Package model defines the vocabulary of served models: tensors, the signatures of a model's
// inputs and outputs, and the reasons for which a request is refused.
package model
