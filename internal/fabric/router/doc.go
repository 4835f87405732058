// Package router serves calls by forwarding them: a [call.Handler] and
// [call.UnaryHandler] in front of many [call.Transport]s.
//
// A call's service is looked up, its policies judge it (internal/fabric/policy), an endpoint
// is picked (fabric/balance), the call is forwarded, and what the policies planned
// is executed: timeouts, delays, retries, hedges, mirrors, links. What happens is
// counted, traced and, where it is slow, logged.
//
// # Concurrency
//
// Everything may be called by many goroutines. Policies and services are replaced
// while calls flow: a call ends on the chain and the endpoint that it began with,
// and an endpoint that was removed is released when its last call has ended.
//
// A unary call runs in its caller's goroutine, which may be one that reads a ring.
// Before it waits for anything but its callee's work (a delay, a back-off, a slow
// link, a hedge) it calls Options.Yield, so that whoever lent the goroutine can let
// another one go on in its place. Calls that stream have one goroutine for each
// direction, and one message in hand each: who does not read is not sent to.
//
// # Ownership
//
// Requests are taken over, as call.Transport says. A request that may be sent more
// than once (retry, hedge) is shared by its attempts, which must not write to it, and
// freed after the last of them. Transports belong to who set the service.
//
// Locks: Router.mu, then a picker's. None is held while a transport is called.
package router
