// Package tenant is the process that runs one tenant's apps on one node: it joins functions,
// workflows and their triggers.
//
// # The process
//
// A node starts Run with a socket on which it sends the process its configuration; the process ends
// when that socket is closed. It has three entry points: a local API on a unix socket, to which the
// node forwards requests that concern the tenant's apps; a socket on which the node hands over
// connections of its HTTP port; and a service of the fabric that the same tenant's processes on
// other nodes call.
//
// # Versions
//
// A manifest deploys a version: functions that are ready to be called, workflows that are checked,
// routes. The process follows the pool's apps. A new version takes all new calls at once; the
// previous one stays for the executions that began with it. Each app is loaded independently;
// requests for an app that is still loading are queued, or are refused with the advice to try
// again.
//
// # Devices
//
// The node leases a device that a function imports: the process requests devices on the node's
// socket, gets the ring of a session, and runs the function's commands through it. The connection
// is the lease, so the lease never outlives the process. Shared devices are held per app on this
// node, reference-counted, and given back by the last holder.
package tenant
