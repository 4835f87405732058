// Package job runs training jobs on the nodes of a pool: it leases the devices of all ranks
// together, has the nodes start the ranks, and starts them again when a node is lost.
//
// # Parts
//
// A [Manager] runs on the node that a job was submitted to: it keeps the job's record in the pool's
// table, its lines in a file, and drives one attempt after the other. A [Host] runs on each node
// with ranks; it starts them only if the node's operator allows it. [Peers] has the connections
// between nodes.
//
// # Protocol
//
// Nodes speak over streams of the fabric, with TLS and the certificates of the pool.
//
//	run    {job, attempt}    the manager's, to each node: messages of this package as JSON, each
//	                         after its length (4 bytes, big-endian)
//	mesh   {job, attempt, from, purpose}    between the servers of two nodes: package ranks
//	store  {job, attempt}    a connection to the store of torch.distributed at rank 0
//
// The end of the run stream ends the ranks: a manager that dies leaves no ranks behind.
package job
