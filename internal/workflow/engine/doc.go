// Package engine executes workflows durably: it drives the pure core over a replicated
// log (event sourcing), so that the death of a node loses no execution.
//
// # The log
//
// An execution is one key of the log, and its records are the events that the core consumed.
// Nothing else is stored: a node that takes an execution over replays the records and continues. An
// append is a compare-and-swap on the sequence of the record that it follows. That is the fence: of
// two nodes that both believe to own an execution, one has its append refused, and stops.
//
// An event is applied to the state first and recorded then, with one append for all events that
// have arrived meanwhile (group commit). The actions that follow from it (calls, timers, published
// events and the outcome) are deferred until the append has returned. So one append lies between a
// step and the next one.
//
// # Values
//
// A result that is no JSON or larger than 64 KiB is not recorded. It lies in the execution's arena;
// the next step gets its place, and the record has its digest. A record must not refer to data that
// a node's death can lose, so the value is saved before the record is appended. That takes as long
// as copying it, and more, and the next step should not wait for it. While a value is being saved,
// calls that have no effects but their results start all the same; everything else waits.
//
// The node's death then loses the results of that chain of calls, back to the first value that was
// not saved yet. They were not recorded, so they are computed again from the last record, perhaps
// to other results. The lost results cannot have been observed: a call without effects is not
// observable, and all observable actions (a call with effects, an event, the outcome) were still
// deferred. Results are recorded in the order in which they were applied, so no record comes before
// one that it follows from. Thus on one node a chain of such steps over large values proceeds at
// the speed of its functions, and its records follow at the speed of the disk.
//
// # At-least-once calls
//
// The start of a call is not recorded. A call whose end was not recorded is made
// again, with the same idempotency key: the execution and the step's path. A call
// whose end was recorded is never made again.
//
// # Concurrency
//
// Each execution has one goroutine that owns its state, [executor]; calls and other
// actions have goroutines of their own and post their results to its inbox. A suspended
// execution occupies no slot.
package engine
