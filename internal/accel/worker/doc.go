// Package worker is the process that executes one session on a real driver:
// `outboard internal worker`, started by the node of the device. It also lists
// the devices that the drivers of this machine offer.
//
// A worker runs foreign kernels, so it gives up what it does not need before it
// loads a driver, and it is expected to crash: everything about it ends with
// its process. It knows its ring and its node's control socket, nothing else.
package worker
