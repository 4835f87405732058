// Package placement decides on which nodes the steps of a workflow run and when they are
// launched. It is pure: its result depends on its arguments alone, and it has no clock.
//
// # Where
//
// Steps on one node pass values in one arena, without a copy; between nodes a value is
// copied over a link. Decide minimises the makespan that Evaluate estimates, then the
// bytes that cross links, then the number of nodes, and spreads steps only when that
// shortens the makespan. The search is exhaustive for small graphs, and a local search
// over single steps and groups of steps for larger ones. The Decision compares each
// step's node with every alternative.
//
// # When
//
// A step with several inputs can be launched lazily, when all inputs are complete: then
// data lies idle. Or eagerly, with the workflow: then its memory lies idle. The third
// policy is that of Caerus: H. Zhang, Y. Tang, A. Khandelwal, J. Chen and I. Stoica,
// "Caerus: NIMBLE Task Scheduling for Serverless Analytics", NSDI '21. From there come
// three rules: launch times follow from the rates at which data is produced and consumed;
// a step consumes data while the rest is being produced; and an output that needs all of
// the input (a "pipeline breaker") ends such a pipeline. Nimble launches a step at the
// latest time that delays no step's end: so the makespan is that of eager launches, and
// no step holds its memory longer. The rule for steps that emit while they consume is this
// package's own: the latest launch time is found by bisection, since a later launch may
// starve downstream steps.
//
// Simulate executes a graph with given launch times on a virtual clock.
package placement
