// Package fabric makes and serves calls with the stubs that gRPC's generator writes, over the best
// transport to the peer: a copy of the message within the process, shared memory on one machine,
// TCP with TLS 1.3, or plain gRPC.
//
// # Porting a program
//
// [ClientConn] is a grpc.ClientConnInterface and [Server] a grpc.ServiceRegistrar, so that stubs,
// services, interceptors, credentials, codecs, compressors, call options and errors stay as they
// are. Of the client one line changes (grpc.NewClient to [Dial]), of the server as well
// (grpc.NewServer to [NewServer]); its listening address is then a target like the one that clients
// dial:
//
//	inproc:NAME  unix:PATH  tcp:HOST:PORT  grpc:HOST:PORT
//
// A server may serve several at once.
//
// # Equal to grpc-go
//
// Unary calls and all kinds of streams; deadlines, which travel and end both sides; cancellation;
// metadata with "-bin" keys, values set by handlers with grpc.SetHeader, SendHeader and SetTrailer,
// and requested by callers with grpc.Header, Trailer, Peer and OnFinish; status codes, texts and
// details; limits of message sizes; codecs by content-subtype and compressors by name; credentials
// of calls; grpc.WaitForReady. The tests run every scenario with grpc-go alone and with this
// package on one side and on both, and compare.
//
// # Differences
//
//   - A call option that can't be honoured is refused with codes.Unimplemented.
//   - Client interceptors get a nil *grpc.ClientConn: there is none.
//   - Within a process a message of protocol buffers is copied and not marshalled.
//     Neither side sees the other's later changes. Strings that are not UTF-8 pass
//     unnoticed, and compressors have nothing to do.
//   - Within a process, the handler of a unary call whose context can never end
//     runs in the caller's goroutine.
//   - [Server.Stop] waits for handlers, as grpc-go's does with WaitForHandlers.
//   - A registration that grpc-go ends the program for panics.
//   - grpc.SetSendCompressor, which knows only grpc-go's own streams, returns an
//     error. Responses take the compression of the request.
//
// # Large messages
//
// Messages over shared memory are marshalled into the memory from which their receiver reads them.
// The receiver gets its own copy nevertheless, since it may keep it. Programs that do not keep them
// read large bytes fields in place: [WithBorrowedRequests], [WithBorrowedResponse].
//
// # Streams outlive the node's process
//
// A stream from a program through its node (target "node:") goes on when another process takes the
// node's calls over: both sides change to a new connection while messages flow. Neither program
// notices.
//
// # Concurrency
//
// ClientConn, Server and Network may be used by any number of goroutines. Of a stream one goroutine
// may send while another receives. A message may be changed once SendMsg or Invoke has returned.
package fabric
