// Package policy judges calls: ordered chains of rules, compiled from YAML and CEL,
// that refuse a call, change it, or say how whoever executes it shall.
//
// It is pure: time, randomness and the call's bytes are arguments, and nothing is
// executed here. [Parse] makes a [Set] of a file. [Set.For] finds the [Chain] of a
// service, method and tenant. [Chain.Begin] judges an [Exchange] and fills its
// [Plan]; whoever executes calls follows the plan and gives back with [Chain.End]
// what Begin took. [Table] holds the set that is in force: [Table.Apply] swaps it
// while calls flow. A call ends on the chain that it began with.
//
// What outlives a call (buckets, breakers, counts, budgets) is kept by the policy's
// name and key, and handed from set to set: a swap neither refills a bucket nor
// forgets calls in flight.
//
// All methods of a Set, a Chain and a Table may be called by several goroutines. An
// Exchange belongs to one call, and is used by one goroutine at a time.
//
// docs/policies.md is the description of the file format for its users.
package policy
