// Package pool maintains the membership of a pool and grants leases on its devices.
//
// # The view
//
// Every node watches the pool's table (package state) and holds a copy of it in memory,
// its view. Reads are served from the view; changes are made by compare-and-swap on the
// table's revisions. Clocks of different machines are never compared: a node's record or
// a grant expires when this node has not seen it change for a time-to-live of its own
// monotonic clock. That clock stands still while the table is silent, since an election
// among its servers silences every heartbeat.
//
// # Leases
//
// The key of a device holds its grants. A grant is void when its holder left the pool or
// restarted, or when it was not renewed in time. Void grants are deleted by the next
// request for the device and by the device's own node. The revision at which a grant was
// written is the lease's fencing token.
//
// # Waiting
//
// A request that finds no free device writes a ticket. Tickets are served in the order of
// their creation; a later one overtakes an earlier one only on devices that the earlier
// one cannot use.
//
// # Concurrency
//
// All methods of Pool are safe for concurrent use. Slices that they return belong to the
// caller. One mutex guards the view; it is never held during an access to the table.
package pool
