// Package tenant is the process that runs one tenant's apps on one node: it joins
// functions, workflows and what starts them.
//
// # The process
//
// A node starts Run with a socket on which it says what the process is; the process
// ends with that socket. It has three doors: a local API on a unix socket, to which the
// node forwards what concerns the tenant's apps; a socket on which the node hands
// over connections of its HTTP port; and a service of the fabric that the same tenant's
// processes on other nodes call.
//
// # Versions
//
// What a manifest deploys is a version: functions that are ready to be called, workflows that
// are checked, routes. The process follows the pool's apps. A new version takes all
// new calls at once; the one before stays for the executions that began with it. Each app
// is made ready by itself; what comes for one before waits, or is told to come again.
//
// # Devices
//
// A device that a function imports the node leases: the process asks on the node's socket
// for devices, gets the ring of a session, and runs the function's commands through it.
// The connection is the lease, so nothing of it outlives the process. What is shared is
// the app's on this node, counted, and given back with its last holder.
package tenant
