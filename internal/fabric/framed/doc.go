// Package framed carries framed streams between two nodes over one connection.
//
// A [Conn] runs over any net.Conn, in practice TCP with TLS 1.3 and certificates
// on both sides. Each end opens streams by method name; a stream is two byte
// streams, one each way, that end separately. PROTOCOL.md is the wire.
//
// # Model
//
//	opener                                   acceptor
//	s, err := c.Open(ctx, "echo", nil)       s, err := c.Accept(ctx)
//	s.Write(request); s.CloseWrite()         s.Read(...); s.Write(reply)
//	s.Read(reply)                            s.Close()
//
// Opening costs no round trip: the first bytes travel with the request. [Mux]
// and [Call] put one-shot JSON calls on top, [Relay] joins a stream and a ring of
// shared memory.
//
// # Flow control
//
// A receiver grants credit to each stream, and takes in nothing beyond it. So the
// goroutine that reads the connection never waits for a slow user of one stream:
// the other streams and the pings pass, and a stream out of credit is no reason
// to think that the peer is dead. A connection holds at most MaxStreams small
// first windows plus Options.Budget bytes that nobody has read yet.
//
// # Death
//
// Each end pings. A peer from which nothing at all comes within
// Options.DeadAfter ends the connection: every blocked call on it returns an
// [*outboard.Error] of kind [outboard.Unreachable]. A peer that breaks the
// protocol ends it with kind [outboard.Protocol].
//
// # Copies
//
// A large Write is encrypted, or sent, straight from the caller's slice, which is
// free again when Write returns. A Read that waits when data arrives gets them
// decrypted straight into its slice; only data that nobody waits for are kept in
// buffers of the connection.
//
// # Metrics
//
// Options.Observer is told of connections, streams, bytes each way and round trips, and
// of how connections ended. Package connmetrics counts them for Prometheus.
//
// # Concurrency
//
// All methods may be called from several goroutines. Reads of one stream take
// turns, and so do its writes. Lock order: Stream.readTurn or writeTurn, then
// Stream.mu; Conn.wire, then Conn.queue; none of the first two with the others
// the other way round, and Conn.mu alone.
package framed
