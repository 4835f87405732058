// Package grpcconn bounds the memory that clients of a gRPC server occupy, and how long they may
// delay it. grpc-go bounds neither the bytes of the messages that it is receiving nor how slowly a
// client may send a message or read its response.
//
// A [Conn] follows the frames of both directions of a connection (RFC 9113). It attributes the bytes
// of a message to its [Call] as they arrive, long before grpc-go passes the message on, and reserves
// them in a [Budget] for the call's client. A call that its client may not hold, or delays for too
// long, ends with an error that names the limit.
//
// A server uses the package in four places: [Credentials] make the connections, the tap handler opens
// each call with [FromTap] and [Conn.Open], [Serve] runs the handlers, and the codec accounts for
// each [Message] that it decodes ([Message.Deliver]).
//
// The locks are taken in this order: that of grpc-go's transport (in the tap handler), a Conn's, a
// Budget's.
package grpcconn
