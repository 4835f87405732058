// Package opencl is the worker's side of OpenCL: it executes the messages of a
// session against the machine's real driver.
//
// The codecs, the tables and the dispatcher are generated from opencl.api, as
// is the driver library's side in cmd/libopencl. What the messages mean is
// docs/design/0004-opencl-session.md.
package opencl

//go:generate go run ../gen/apigen -api opencl.api -go . -c ../../../cmd/libopencl -docs ../../../docs/opencl.md -title "How each OpenCL function is forwarded"
