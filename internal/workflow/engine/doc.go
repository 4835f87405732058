// Package engine runs workflows so that no node's death loses one: it drives the
// pure core over a log.
//
// # What is kept
//
// An execution is one key of the log, and its records are the events that the
// core consumed. Nothing else is kept; who takes an execution over makes its state
// of the records and goes on. An append names the record that it follows, so of
// two nodes that think they have an execution one is refused, and stops.
//
// What happens is applied to the state first and recorded then, one append for
// all that has come together meanwhile. What follows from it, which is calls,
// timers, events for others and the outcome, is held until the append has
// returned. So one append lies between a step and the next one.
//
// # Values
//
// A result that is no JSON or larger than 64 KiB is not recorded. It lies in the
// execution's arena; the next step gets its place, and the record has its
// digest. A record must not refer to what a death can lose, so the value is saved
// before the record is appended. That takes as long as copying it, and more, and
// the next step should not wait for it. While a value is being saved, calls that
// have no effects but their results start all the same; everything else waits.
//
// What then is lost when the node dies: the results of that chain of calls, back
// to the first value that was not saved yet. They were not recorded, so they are
// computed again from the last record, perhaps to other results. Nobody can have
// seen those that were lost: a call without effects told nobody, and what would
// have told somebody (a call with effects, an event, the outcome) was still
// held. Results are recorded in the order in which they were applied, so no
// record comes before one that it follows from. Thus on one node a chain of such
// steps over large values goes on at the speed of its functions, and its records
// follow at the speed of the disk.
//
// # Calls that are made twice
//
// A call has no record of its start. One whose end was not recorded is made
// again, with the same execution and path, by which a function with effects can
// know it again. One whose end was recorded is never made again.
//
// # Concurrency
//
// Each execution has one goroutine that owns its state, [run]; calls and other
// actions have their own and send it what came of them. An execution that only
// waits holds no place among those that run.
package engine
