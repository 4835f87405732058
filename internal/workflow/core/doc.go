// Package core implements the state machine of a workflow execution. It is pure: it has no
// clock, does no I/O and starts no goroutine. Time is an attribute of events.
//
// An [Execution] consumes events ([Execution.Apply]) and produces actions: functions to
// call, timers to set, events to publish or to wait for. It is deterministic: the same
// events in the same order lead to the same state, on every node and at any time. So the
// log of events is the only durable state (event sourcing), and replaying it rebuilds the
// execution. [Execution.Pending] returns the actions in progress, which have to be
// started again after a replay.
//
// # Duties of the caller
//
//   - Events are applied in the order in which they are recorded.
//   - An event may be applied before it is recorded, but no action that it produced
//     may have a visible effect before the record is durable.
//   - The times of events never decrease.
//   - The execution stops an action that it no longer needs with [Stop].
//     Events of stopped actions are allowed and change nothing.
//
// # Paths
//
// A path names one run of a task, so the step's idempotency key is derived from it. It
// consists of the names of the enclosing tasks and of the task itself, separated by '/'.
// Suffixes tell one run of a task from another: "[2]" is the iteration of a loop, "#2"
// the second attempt of a try, "@2" the second visit within its list of tasks, "!" the
// tasks of catch.
//
//	each[4]/careful#2/resize
//
// # What the DSL leaves unspecified
//
//   - The output of a skipped task is its input, and execution continues with the next
//     task.
//   - exit ends the list that the task is in: the iteration of a loop, the branch of a
//     fork.
//   - A competing branch that fails is ignored while others run; the fork fails when all
//     branches have failed, with the last error.
//   - The output of a loop's iteration is the input of the next one; the loop's output is
//     that of the last iteration.
//   - A caught error without a retry policy and without tasks of catch is discarded: the
//     output of the try is its input. After the last attempt the error is raised, unless
//     there are tasks of catch.
//   - limit.attempt.count is the number of retries. Jitter is a hash of the attempt's
//     path.
//   - An emit's output is its event. A listen's is always an array.
//   - A filter's text equals the attribute or, as a regular expression, matches all of it.
//   - $runtime has no version, since a node of another version must reach the same state.
package core
