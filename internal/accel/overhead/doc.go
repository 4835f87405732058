// Package overhead predicts how long a recorded program takes with its device behind a network:
// the model of accelerator API remoting, as tasks for the evaluator of internal/cost.
//
// # Model
//
// The resources of a program are its threads, the two directions of the link, the worker of each
// session, and the queues of the devices. A forwarded call is a flow through them:
//
//	thread ──encode──► uplink ──RTT/2──► worker ──execute──► queue ──device time──┐
//	  ▲                                                                           │ host-blocking
//	  └──────────────── receive ◄──RTT/2── downlink ◄── reply ◄───────────────────┘
//
// A call that is answered locally stays on the thread. An early call ends at the uplink; its thread
// continues, at most a window of bytes ahead of the link. Only a waited-for call returns through
// the downlink. Messages of one direction share the link's rate, and each pays the propagation
// delay once, however many are in flight.
//
// Large messages are fluid: the next resource begins when the first byte arrives, and is not
// done before the last. So splitting a transfer never helps.
//
// # Where the times come from
//
// A trace of a run through a session has the times of both ends. A trace of a local run has the
// program's gaps, the driver's execution times and the device's; the cost of forwarding comes from
// Constants, which are measured on the machines themselves (`outboard calibrate`) with programs
// other than those predicted. Record 0012 lists the effects that the model omits.
package overhead
