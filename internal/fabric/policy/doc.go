// Package policy applies policies to calls: ordered chains of rules, compiled from YAML and
// CEL, that reject a call, change it, or plan how it is executed.
//
// It is pure: time, randomness and the call's bytes are arguments, and nothing is executed
// here. [Parse] compiles a file into a [Set]. [Set.For] finds the [Chain] of a service,
// method and tenant. [Chain.Begin] applies the chain to an [Exchange] and fills its [Plan];
// the executor of the call follows the plan and releases with [Chain.End] what Begin
// acquired. [Table] holds the set in force: [Table.Apply] swaps it while calls flow. A call
// ends on the chain on which it began.
//
// State that outlives a call (token buckets, circuit breakers, calls in flight, retry
// budgets) is kept by the policy's name and key, and passed from set to set: a swap neither
// refills a bucket nor loses calls in flight.
//
// All methods of a Set, a Chain and a Table are safe for concurrent use. An Exchange belongs
// to one call, and is used by one goroutine at a time.
//
// docs/policies.md describes the file format.
package policy
