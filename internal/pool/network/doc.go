// Package network measures the network between this node and a few others: round-trip time,
// bandwidth in each direction and loss, within a budget of bytes per minute.
//
// A node probes at most [Peers] other nodes: first the nodes with which it shares a lease, then
// nodes with devices, chosen by rendezvous hashing so that each node of a large pool has different
// peers and keeps them while nodes come and go. Two places change every few minutes, so that the
// pool as a whole sees more of its links. The cost of a node therefore does not depend on the
// pool's size. One peer is probed at a time, in turn.
//
// The package decides which nodes are probed and when; its user decides how a probe reaches another
// node.
package network
