// Package pool knows the nodes of a pool and their devices, and grants leases on
// devices: who is there, who may use what, and who is next.
//
// # The view
//
// Every node follows the pool's table (package state) and keeps a view of it in
// memory. Reads come from the view; changes are made by compare-and-set on the
// table. Nothing compares clocks of machines: a node's record or a grant is
// taken for dead when this node has not seen it change for a while of its own
// monotonic time. That clock stands still while the table is silent, so that
// a pool whose servers elect a new leader does not take everybody for dead.
//
// # Leases
//
// The key of a device holds its grants. A grant is void when its holder left
// the pool or started again, and when it was not renewed in time. Void grants are
// removed by whoever wants the device and by the device's own node.
// The revision at which a grant was written is the lease's fence.
//
// # Waiting
//
// A request that no free device meets writes a ticket. Tickets are served in the
// order of their creation; a later one passes an earlier one only on devices
// that the earlier one can't use.
//
// # Concurrency
//
// All methods of Pool may be called by several goroutines. Slices that they
// return belong to the caller. One mutex guards the view; no call to the table is made
// under it.
package pool
