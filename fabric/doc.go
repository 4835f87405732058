// Package fabric makes and serves calls with the stubs that gRPC's generator
// writes, over whatever way leads to the peer.
package fabric
