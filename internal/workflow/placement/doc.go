// Package placement decides where the steps of a workflow run and when they are
// launched. It is pure: what it needs to know are its arguments, and it has no clock.
//
// # Where
//
// Steps on one node hand values on in one arena, without a copy; between nodes a value
// is copied over a link. Decide estimates with Evaluate how long the whole takes and
// puts steps apart only when that makes it shorter; of what takes the same time it
// takes what moves fewer bytes, then what needs fewer nodes. It tries all assignments
// of a small graph, and looks step by step and group by group in a larger one. Its
// Decision says for each step what each other node would have meant.
//
// # When
//
// A step that waits for several others can be launched lazily, when all its inputs are
// there: then data lies idle. Or eagerly, with the workflow: then its memory lies idle.
// The third way is that of Caerus: H. Zhang, Y. Tang, A. Khandelwal, J. Chen and
// I. Stoica, "Caerus: NIMBLE Task Scheduling for Serverless Analytics", NSDI '21. It
// takes from there that launch times follow from the rates at which data is made and
// consumed, that a step consumes what exists while the rest is being made, and that
// what can only be made after all input was consumed (behind a "pipeline breaker") ends
// such a pipeline. Nimble launches a step at the latest time that moves no step's end:
// so the whole takes as long as when all are launched eagerly, and no step is held
// longer. The rule for steps that pass on what they consume is this package's own: the
// latest launch is searched for, as what comes later may starve those behind.
//
// Simulate runs the steps of a graph at given launch times on a virtual clock.
package placement
