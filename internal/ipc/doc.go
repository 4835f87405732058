// Package ipc is the protocol that processes of one machine use with each other: framed messages
// over a unix socket (SOCK_SEQPACKET), with open files, request numbers and time-outs.
//
// A message is one packet: a JSON object whose first members are the [Header] and whose other
// members are the body. docs/design/0008-local-protocol.md is the specification.
//
// A [Conn] serves one of two patterns:
//
//   - Requests in both directions: one goroutine runs [Conn.Serve]; any number of goroutines use
//     [Conn.Call], [Conn.Send] and [Conn.Reply].
//   - A sequence of messages: one goroutine alternates [Conn.Send] and [Conn.Receive].
//
// The peer is not trusted: packets, bodies, files and pending requests are bounded, a body that is
// passed as a file must be memory, and a write that the peer does not read ends after a time-out.
// The files of a received message belong to the receiver, which closes the message.
package ipc
