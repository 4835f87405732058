// Package policy checks files of policies, and makes them self-contained, before a program applies
// them with client.Client.ApplyPolicies.
//
// A file of policies is YAML with CEL expressions. It determines which calls the fabric admits,
// limits, retries, hedges, mirrors or changes, and how it balances them over endpoints.
// docs/policies.md describes the format. Nodes compile and enforce a file; this package only
// reports whether they would accept it.
package policy

import (
	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// Error is a mistake in a file, with its line and column. Check joins several Errors: errors.As
// finds the first.
type Error = policy.Error

// Descriptors provides the descriptors of services. A *protoregistry.Files implements it.
type Descriptors = policy.Descriptors

// Options are the optional inputs of Check. The zero value provides none.
type Options struct {
	// Descriptors describe the services that the file names. Expressions that read a request of a
	// service without a descriptor are not type-checked.
	Descriptors Descriptors
	// Module returns the code of a WebAssembly module that the file names. If it is nil, a file
	// that names a module is refused.
	Module func(name string) ([]byte, error)
}

// Check returns nil if a node would accept the file, and otherwise the mistakes in it, joined,
// each an Error. name stands for the file in their texts.
func Check(name string, text []byte, o Options) error {
	text, _, err := balance.SplitRules(name, text)
	if err != nil {
		return err
	}
	_, err = policy.ParseOptions(name, text, policy.Options{Descriptors: o.Descriptors, Module: o.Module})
	return err
}

// Inline returns the file with each name of a WebAssembly module replaced by the module's code,
// since nodes do not see the files of the machine that applies it. module returns the code. Line
// numbers are preserved.
func Inline(name string, text []byte, module func(name string) ([]byte, error)) ([]byte, error) {
	return policy.Inline(name, text, module)
}
