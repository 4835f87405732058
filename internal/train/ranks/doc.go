// Package ranks serves the collective calls of a job's ranks on this machine: their buffers lie
// in memory that they share with the server, so that only ranks of other nodes need messages.
//
// # Protocol
//
// A rank connects to the server's socket once for each of its groups and speaks the local
// protocol (internal/ipc). All messages are requests of the rank.
//
//	join  {group, rank, size, nodes}          the first message; group is the same in all ranks;
//	                                          nodes has the number of each rank's node
//	call  {operation, element, reduction,     a collective call; with a file: that is the rank's
//	       count, root, offset, site}         memory from now on
//	send  {peer, tag, offset, bytes}          to another rank of the group
//	read  {name, at, offset, bytes, next}     of the job's dataset, without or after join
//	checkpoint {number}                       instead of join; with a file: the state after a step
//	decide {subject, rank, bytes}             without or after join; with a file that is shared
//	                                          memory: the rank's measurements, as JSON. The reply
//	                                          says how many bytes of a decision replace it
//	leave {}                                  the last message of a process that goes on without the
//	                                          group; there is no reply
//	detach {}                                 another process of this rank will join the group again
//	suspend {rank, moves}                     instead of join; with a file: the state with which the
//	                                          rank's next process continues; moves: on the server of
//	                                          a later attempt of the job
//	resume {rank}                             instead of join; the reply has the file of suspend
//	elsewhere {expired}                       instead of join: the time of these ranks is over. The
//	                                          reply has moves if all ranks end, to continue in the
//	                                          job's next attempt
//	receive {peer, tag, offset, bytes}        the reply comes when the bytes have arrived
//
// Memory is a memfd that can't change its size; offset is where the buffer begins in it. A
// rank whose connection ends, and ranks that disagree about a call, end the calls of the whole
// group with an error that says so.
//
// # Several nodes
//
// A job on several nodes has a server on each. The ranks of one node are reduced in memory, the
// nodes' results by a [collective.Group] over the connections of a [Mesh], and the result is
// copied to the ranks. A group is connected when its first rank joins; join is answered then.
package ranks
