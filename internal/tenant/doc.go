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
// new calls at once; the one before stays for the executions that began with it.
package tenant
