// Package ranks serves the collective calls of ranks that are processes of this machine: their
// buffers lie in memory that they share with the server, so that a reduction needs no messages.
//
// # Protocol
//
// A rank connects to the server's socket once for each of its groups and speaks the local
// protocol (internal/ipc). All messages are requests of the rank.
//
//	join  {group, rank, size}                 the first message; group is the same in all ranks
//	call  {operation, element, reduction,     a collective call; with a file: that is the rank's
//	       count, root, offset, site}         memory from now on
//	send  {peer, tag, offset, bytes}          to another rank of the group
//	receive {peer, tag, offset, bytes}        the reply comes when the bytes are there
//
// Memory is a memfd that can't change its size; offset is where the buffer begins in it. A
// rank whose connection ends, and ranks that disagree about a call, end the calls of the whole
// group with an error that says so.
package ranks
