// Package worker is the process that executes one session on a real driver:
// `outboard internal worker`, started by the node of the device. It also lists
// the devices that the drivers of this machine offer.
//
// A worker runs foreign kernels, so it gives up what it does not need before it
// loads a driver, and it is expected to crash: everything about it ends with
// its process. It knows its ring and its node's control socket, nothing else.
//
// # Confinement
//
// A kernel is native code in this process, and the process belongs to the node's
// user. It loses root's capabilities; Landlock takes away files, TCP, signals to
// others and the tracing of processes outside (reading the node's memory is
// tracing); a filter of system calls takes away unix sockets, which Landlock does
// not, and the ways out of the process group. The node refuses workers at its
// sockets as well. What a kernel version can't do is said in the node's log.
package worker
