// Package framed multiplexes streams between two nodes over one connection.
//
// A [Conn] runs over any net.Conn, in practice TCP with TLS 1.3 and certificates on both sides.
// Each end opens streams by method name; a stream is two byte streams, one each way, that end
// separately. fabric/PROTOCOL.md specifies the wire format.
//
// # Model
//
//	opener                                   acceptor
//	s, err := c.Open(ctx, "echo", nil)       s, err := c.Accept(ctx)
//	s.Write(request); s.CloseWrite()         s.Read(...); s.Write(reply)
//	s.Read(reply)                            s.Close()
//
// Opening costs no round trip: the first bytes travel with the request. [Stream.CopyTo] fills
// a ring in shared memory in place.
//
// # Flow control
//
// A receiver grants credit to each stream and accepts no bytes beyond it. The goroutine that reads
// the connection therefore never waits for a slow consumer of one stream: other streams and pings
// pass, and a stream without credit does not make the peer look dead. A connection buffers at most
// MaxStreams initial windows plus Options.Budget bytes.
//
// # Liveness
//
// Each end sends pings. A peer that is silent for Options.DeadAfter, or reads nothing for five
// minutes, ends the connection: every blocked call on it returns an [*outboard.Error] of kind
// [outboard.Unreachable]. So does a peer that does not complete a frame of a stream within DeadAfter
// of the stream's end here. A peer that breaks the protocol ends it with kind [outboard.Protocol].
//
// # Copies
//
// A large Write is encrypted, or sent, from the caller's slice, which is not kept. Data that
// arrives while a Read waits is decrypted into the Read's slice; only data without a waiting
// Read is buffered.
//
// # Metrics
//
// Options.Observer observes connections, streams, bytes each way and round trips, and the ends of
// connections. Package connmetrics counts them for Prometheus.
//
// # Concurrency
//
// All methods may be called from several goroutines. Reads of one stream exclude each other, and so
// do its writes. Lock order: receiveSide.turn or sendSide.turn, then Stream.mu, then
// frameWriter.lock, then frameWriter.queue; Conn.mu is a leaf.
package framed
