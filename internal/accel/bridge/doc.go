// Package bridge carries the bytes of a session between two rings of shared memory over streams of
// the fabric, and continues over a new connection when one is cut.
//
// Each end has a [Half]. A session uses two streams of one connection: one for the ring's bytes as
// they are, one for acknowledgements, positions of eight bytes (little endian) that report how many
// of the other end's bytes have arrived in the ring. The sender keeps unacknowledged bytes in its
// own ring, whose space it releases only then. There is no second copy.
//
// When the connection is lost, the program's side dials anew and opens both streams again with the
// session's token ([Opening]) and the number of bytes that it has received. The device's side
// answers with its own number, and each side continues after the bytes that the other one has. No
// byte is sent into a ring twice, and none is left out. The device's side keeps a session without a
// connection for Opening.Patience; a session whose lease ends meanwhile ends with it.
//
// Only the loss of a connection is bridged. A stream that is reset, a connection that its owner
// closes, and a peer that violates the protocol end the session at once.
package bridge
