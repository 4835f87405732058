// Package bridge carries the bytes of a session between two rings of shared memory over streams of
// the fabric, and goes on over a new connection when one is cut.
//
// Each end has a [Half]. A session uses two streams of one connection: one for the ring's bytes as
// they are, one for acknowledgements, positions of eight bytes (little endian) that say how much
// of the other's bytes has arrived in the ring. The sender keeps what is not acknowledged where it
// lies: in its own ring, whose space it releases only then. There is no second copy.
//
// When the connection is lost, the program's side dials anew and opens both streams again with the
// session's token ([Opening]) and the number of bytes that it has received. The device's side
// answers with its own number, and both continue behind what the other one has. Nothing is sent
// twice into a ring and nothing is left out. The device's side keeps a session without a
// connection for Opening.Patience; a session whose lease ends meanwhile ends with it.
//
// Only the loss of a connection is bridged. A stream that is reset, a connection that its owner
// closes, and a peer that breaks the protocol end the session at once.
package bridge
