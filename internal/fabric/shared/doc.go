// Package shared carries calls between two processes of one machine over shared
// memory. A [Conn] is a call.Transport and a call.Unary, and serves the calls of
// its peer with Options.Handler.
//
// # Model
//
// A connection is one sealed memfd, the region, and one unix socket. The socket passes
// the region during the handshake, its credentials identify the peer, its end-of-file
// signals the peer's death, and one byte on it drains the connection. Everything else is
// in the region, which has two lanes: one for the calls of the side that dialled, one for
// the calls of the side that listened. A lane has in each direction a ring of descriptors,
// a heap, and a ring through which the receiver of heap blocks returns them. The byte
// layout is in fabric/PROTOCOL.md.
//
// A small call is one slot of a ring each way: descriptor, head and message in a few cache
// lines. A larger message lies in the sender's heap, and its receiver reads it in place:
// [Conn.Lend] allocates heap memory that a sender marshals into. A message that exceeds a
// heap block is sent in chunks. Up to a quarter of the heap the chunks are adjacent blocks, if
// there are some, and the receiver reads the message in place too.
//
// # The reader
//
// There is no demultiplexing goroutine. Of the goroutines that wait for the peer on a lane
// of their own calls one is the reader: it sleeps on the lane's futex, processes all
// descriptors, wakes the goroutines whose replies have arrived, and passes its role on when
// it has its own reply. With one call in flight the caller itself sleeps on the futex. The
// peer's calls are read by one goroutine of the connection, which serves them itself when
// Options.Inline declares that the handler never blocks.
//
// # Zero copy
//
// Lend allocates memory for a message: of the Conn or the stream for requests, of the stream or of
// [LenderFrom] for responses. Marshal into its Data, shorten Data to the bytes written, and send
// it: the peer reads it in place. A received message has to be freed: its memory belongs to the
// sender's heap.
//
// # Bounds
//
// Rings, heaps, calls in flight, heads, messages and the flow-control windows of streams
// are bounded by [Options]. When more than half of a heap is allocated, the receiver copies
// messages and returns their blocks at once, so that a slow receiver cannot block the other
// calls' senders.
//
// # Trust
//
// The peer can write anywhere in the region at any time. Each side therefore keeps its
// indices, tables and allocator in private memory, copies each descriptor before it
// validates it, and reads nothing twice. A protocol violation ends the connection with an
// error that describes it. The data of a message that was received in place can change
// while it is read: code that relies on it copies it first.
package shared
