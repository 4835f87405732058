// Package router serves calls by forwarding them: a [call.Handler] and
// [call.UnaryHandler] in front of many [call.Transport]s.
//
// The router looks up a call's service, applies its policies (internal/fabric/policy), picks
// an endpoint (internal/fabric/balance), forwards the call, and executes the policies' plan:
// timeouts, delays, retries, hedged calls, mirrored calls, emulated links. It counts and
// traces calls, and logs slow ones.
//
// # Concurrency
//
// Everything is safe for concurrent use. Policies and services are replaced while calls
// flow: a call ends on the chain and the endpoint with which it began, and a removed
// endpoint is released when its last call has ended.
//
// A unary call runs in its caller's goroutine, which may be the goroutine that reads a ring. Before
// it waits for anything but its callee's work (a delay, a back-off, a slow link, a hedged call) it
// calls Options.Yield, so that the lender of the goroutine can replace it. Streaming calls have one
// goroutine per direction, which holds one message: back-pressure passes from the receiver to the
// sender.
//
// # Ownership
//
// The router owns the requests of its calls, as call.Transport says. A request that may be
// sent several times (retries, hedged calls) is shared by its attempts, which must not write
// to it, and freed after the last one. Transports belong to the caller of SetService.
//
// Locks: Router.mu, then a picker's. No lock is held while a transport is called.
package router
