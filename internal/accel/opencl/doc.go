// Package opencl executes a client's OpenCL calls on a real driver: the worker's side of
// opencl.api. The zz_ files are generated from opencl.api; the others hold the methods that the
// description calls `worker`, and the code that all methods share.
//
// # Order
//
// One goroutine, the dispatcher, reads messages from the ring and calls the driver in their order.
// A call whose reply the client waits for is answered at once when the client has no other thread;
// otherwise its command is still enqueued in order, but a separate goroutine waits and answers. Two
// kinds of messages are never overtaken: kernels' output and the data of non-blocking reads are
// sent before any reply or event notice from which the client could conclude that they are done.
//
// # Formats that opencl.api leaves open
//
// All are made of the body's elements: words, and arrays of bytes with a count word and padding.
//
//	facts, include_files, include_names   as docs/design/0004 says
//	binary          the binaries one after the other, with the sizes in lengths
//	snapshot        facts of platform 1 and device 2
//	sub-devices     get the ids first_id, first_id+1, ...; facts are theirs
//	props           with or without the closing zero
//
// A reply that carries bulk has no body.
//
//go:generate go run ../gen/apigen -api opencl.api -go . -c ../../../cmd/libopencl -docs ../../../docs/opencl.md -title "How each OpenCL function is forwarded"
package opencl
