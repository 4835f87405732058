// Package core is the state machine of a workflow's execution. It is pure: it has no
// clock, does no I/O and starts no goroutine. Time comes with events.
//
// An [Execution] consumes events ([Execution.Apply]) and produces actions: functions to
// call, timers to set, events to publish or to wait for. It is deterministic: the same
// events in the same order lead to the same state, on every node and at any time. So a
// log of the events is all that has to be kept (event sourcing), and replaying it
// rebuilds the state. [Execution.Pending] returns the actions under way, which have to
// be started again after a replay.
//
// # Duties of the caller
//
//   - Events are applied in the order in which they are recorded.
//   - An event is applied before or after it is recorded, but no action that came
//     of it may have an effect that others see before the record is safe.
//   - The times of events never go back.
//   - An action of which the execution no longer knows is stopped by [Stop].
//     Events of stopped actions are allowed and change nothing.
//
// # Paths
//
// A path names one run of a task, so it is the step's idempotency key. It is made of the names of the tasks from the
// outside in, separated by '/'. To a name is added what tells one run of the
// task from another: "[2]" the round of a loop, "#2" the second try, "@2" the
// second time that the tasks around it came by, "!" the tasks that catch.
//
//	each[4]/careful#2/resize
//
// # Where the DSL leaves room
//
//   - A task that is skipped hands on what it got, and leads to the next one.
//   - exit ends the list that the task is in: in a loop the round, in a fork the
//     branch.
//   - Of branches that compete one that fails is out of the race; the fork fails
//     when all have failed, with the last error.
//   - A loop hands what a round made to the next one, and its output is that of the
//     last one.
//   - An error that is caught and for which there is nothing to do is forgotten: the
//     try hands on its input. After the last of several attempts it is raised,
//     unless there are tasks that catch.
//   - limit.attempt.count is how often it is tried again. Jitter is drawn from the
//     attempt's name.
//   - An emit's output is its event. A listen's is always an array.
//   - A filter's text is equal to the attribute or, as a regular expression, matches
//     all of it.
//   - $runtime has no version: a node of another one has to come to the same state.
package core
