// Package remote carries calls over one framed connection, each in a stream of its own.
// PROTOCOL.md, "Calls over streams", specifies the wire.
//
// # Model
//
// A [Conn] is both ends at once: a [call.Transport] to the peer, and a server of
// the peer's calls. A call is a stream of the method "call". The call's head travels in
// the OPEN frame, everything else as records: a small unary call is one write each
// way, OPEN, DATA and END together.
//
// # Goroutines
//
// The goroutine that reads the connection parses records and wakes the goroutines that wait for
// them. It also serves unary calls itself if the handler is a [call.UnaryHandler] whose latest
// calls were quick. When a call is slow, another goroutine takes over the reading within
// milliseconds, and the method's calls get goroutines of their own for a while. All other calls
// have a goroutine each.
//
// # Bounds
//
// Heads, headers and trailers have at most 64 KiB, messages Options.MaxMessage, and a
// stream holds at most its window and one message that the call has not received. The length
// of a message is not trusted: memory for all of it is allocated once a tenth has arrived. A
// connection keeps up to 64 MiB for its next long messages, for a second. The
// streams of a connection are bounded by framed.Options.MaxStreams, the handlers that
// still run by twice that.
//
// # Memory
//
// A received message lies in memory of its own, or, if it is long, in memory that the
// connection uses again once the message is freed. Send has copied or written a message
// when it returns, and frees it.
//
// # Errors
//
// Errors of calls are errors of package status. A connection that ends is
// codes.Unavailable for each of its calls. Handlers see the cancelled context of a
// call that its caller has cancelled, and codes.Canceled from Recv and Send.
package remote
