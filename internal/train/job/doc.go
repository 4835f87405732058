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
//	offer  {job, attempt}    the manager's: ends without an error if the node starts ranks of jobs
//
// The end of the run stream ends the ranks: a manager that dies leaves no ranks behind.
//
// # Stages that continue on another node
//
// Before each step the ranks of a job with a stage limit and "elsewhere" agree whether the time of
// one is over (python/outboard/limit.py). If so, rank 0 asks its node, and the node asks the manager,
// which leases devices of another node for all ranks of the node of that rank:
//
//	node of rank 0   expired {ranks}
//	manager          moves {granted}
//	each node        suspended {rank, digest}    if granted: the state of each rank
//	each node        exited                      of ranks that have not failed
//
// The next attempt keeps the leases of the other nodes, and starts all ranks with their states.
package job
