// Package dsl reads workflows: the part of the CNCF Serverless Workflow DSL 1.0
// that Outboard runs.
//
// [Parse] checks everything that can be checked before a workflow runs, and says
// what is wrong with its line and with what would be right: keys that the DSL
// does not have, parts of the DSL that are not run here (by their names),
// directives that lead nowhere, expressions that do not compile. What it returns
// needs no further checks and is never changed; several goroutines may use it.
//
// # What is accepted
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
// Without a body the function gets the task's input. Of later versions 1.0.x there
// is set with one expression, which the reader of the DSL's own Go SDK (3.1.0) does
// not know. That reader is used in tests only: it says no lines, lets unknown keys
// pass and compiles no expression.
//
// # Expressions
//
// Expressions are jq, in the DSL's strict mode: "${ ... }" where a value may
// stand, and with or without the braces where only an expression may. Their
// outcome depends on nothing but what they are given, since a workflow is
// rebuilt by evaluating them again: now is the time of the event that is being
// handled, local time is UTC, there is no environment and no input stream. They
// are the tenant's, so each evaluation is bounded in steps, which are the same on
// every machine, and in the size of what it makes.
package dsl
