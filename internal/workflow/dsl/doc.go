// Package dsl parses workflows: the part of the CNCF Serverless Workflow DSL 1.0
// that Outboard supports.
//
// [Parse] checks everything that can be checked before a workflow runs, and reports
// each problem with its line and its remedy: unknown keys, constructs of the DSL that
// are not supported (by their names), directives without a target, expressions that do
// not compile. Its result needs no further checks and is immutable, so it is safe for
// concurrent use.
//
// # The supported part
//
// The tasks call, do, emit, for, fork, listen, raise, set, switch, try and wait;
// with each of them if, input.from, output.as, export.as, timeout, then and
// metadata. A workflow may have input.from, output.as, timeout, and in use the
// definitions of errors, retries and timeouts. A function of the app is called by
// its name:
//
//   - shrink:
//     call: resize
//     with: {body: "${ .photo }", entry: resize, meta: {width: "200"}}
//
// Without a body the function gets the task's input. Of later versions 1.0.x, set with
// a single expression is supported, which the parser of the DSL's own Go SDK (3.1.0)
// does not know. That parser is used in tests only: it reports no lines, accepts unknown
// keys and compiles no expressions.
//
// # Expressions
//
// Expressions are jq, in the DSL's strict mode: "${ ... }" where a value may
// stand, and with or without the braces where only an expression may. They are
// deterministic, since a replay evaluates them again: now is the time of the event that
// is being handled, local time is UTC, and there is no environment and no input stream.
// They are untrusted input, so each evaluation is bounded in steps, which are the same
// on every machine, and in the size of its values.
package dsl
