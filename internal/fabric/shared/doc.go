// Package shared carries calls between two processes of one machine over shared
// memory. A [Conn] is a call.Transport and a call.Unary, and serves the calls of
// its peer with Options.Handler.
//
// # Model
//
// A connection is one sealed memfd, the region, and one unix socket. The socket
// passes the region when the connection begins, says by its credentials who the
// peer is, and says by its end that the peer is gone. All else is in the region,
// which has two lanes: one for the calls of the side that dialled, one for the
// calls of the side that listened. A lane has a ring of descriptors each way, a
// heap each way, and a ring each way for what the receiver of heap memory gives
// back. The byte layout is in fabric/PROTOCOL.md.
//
// A small call is one slot of a ring each way: descriptor, head and message in a
// few cache lines. What is larger lies in the sender's heap, and its receiver reads
// it there: [Conn.Lend] gives a sender heap memory to marshal into. What is larger
// than a piece of the heap goes in chunks.
//
// # Who waits where
//
// Nobody demultiplexes replies. Of the goroutines that wait for something from the
// peer on a lane of their own calls one is the reader: it sleeps on the lane's
// futex, takes all that has come, wakes the others whose turn has come, and hands the
// role on when it has its own. With one call in flight the caller itself sleeps on
// the futex. Calls of the peer are taken by one goroutine for each connection, and
// served right there when Options.Inline says that the handler never blocks.
//
// # Without copies
//
// Memory for a message is asked for with Lend: of the Conn or the stream for requests,
// of the stream or of [LenderFrom] for responses. Marshal into its Data, cut Data to
// what was written, and send it: the peer reads it where it is. A message that was
// received has to be freed: its memory is the sender's.
//
// # Bounds
//
// Rings, heaps, calls in flight, heads, messages and the bytes of a stream that
// nobody has read yet are all bounded, by [Options]. When more than half of a heap
// is lent out, the receiver copies what it gets and gives it back at once, so that
// a slow reader can't keep the other calls from sending.
//
// # Trust
//
// The peer can write anything anywhere in the region at any time. So each side
// keeps its own positions, tables and allocator in private memory, copies each
// descriptor before it looks at it, and reads nothing twice. A peer that breaks the
// rules ends the connection, with an error that says how. The data of a message that
// was received in place can change while it is read: whoever parses it with trust
// copies it first.
package shared
