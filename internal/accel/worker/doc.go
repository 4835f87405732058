// Package worker is the process that executes one session on a real driver: `outboard internal
// worker`, started by the node of the device. It also lists the devices that the drivers of this
// machine offer.
//
// A worker runs foreign kernels, so it enters a sandbox before it loads a driver, and it is
// expected to crash: all its state ends with its process. It has access to its ring and its node's
// control socket only.
//
// # Isolation
//
// A kernel is native code in this process. The node starts the process in new namespaces; the
// process then builds a root, becomes another user, restricts its files and system calls (package
// sandbox) and executes its program again. The first process stays as the init of the PID
// namespace. The node also refuses connections of workers to its sockets. Mechanisms that a machine
// lacks are listed in the node's log and in the list of its devices.
package worker
