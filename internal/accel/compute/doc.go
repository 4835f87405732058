// Package compute runs kernels on a leased device for a program without a driver library.
//
// A [Device] is the client's end of an OpenCL session (docs/design/0004), in Go alone: it sends the
// same messages through a ring as the driver library. A [Holder] is one user of it: it has a queue,
// and buffers and programs of its own, under numbers that it chooses. Several holders may use one
// Device at the same time, each from one goroutine.
//
// # Commands
//
// [Holder.Do] executes a list of commands, in their order, and returns when the device has
// completed them. Numbers are little-endian; "bytes" is a u32 and as many bytes; a place is the
// address and the size, both u32, of a part of the program's memory that Do may access.
//
//	1 buffer   number u32, size u64                        its contents are zero
//	2 write    number u32, offset u64, bytes
//	3 program  number u32, source bytes, options bytes     built at once
//	4 launch   program u32, kernel bytes, dimensions u8, global u64 for each, local u64 for
//	           each (all 0: the driver chooses), arguments u8, each of them
//	           1 scalar bytes | 2 buffer number u32 | 3 local memory size u64
//	5 read     number u32, offset u64, size u32            into the result
//	6 free     number u32                                  a buffer
//	7 write    number u32, offset u64, place               from the program's memory
//	8 read     number u32, offset u64, place               into the program's memory
//
// An invalid list is refused before any command of it is executed. When commands fail, Do returns
// the error of the first one; how many of the later commands were executed is undefined, but
// buffers that the list created no longer exist.
//
// # Programs
//
// A program is kept for a while and shared by all holders that build the same source: compiling
// takes longer than most kernels run. A program that has variables is not shared, since they would
// carry data from one holder to another.
//
// # Printing
//
// The output of kernels precedes the reply to the list in which they ran, and is in that list's
// Result. Text that the worker sent before the list began is in no later Result. The device does
// not report which kernel printed: when lists of several holders run at the same time, the Result
// of each contains the output of all.
//
// # Cancellation
//
// Do returns when its context ends, even if the device still works, and does not access its memory
// afterwards. The holder can't be used any more, and the Device should get no new holders (Stuck).
// A message that is half written can't be taken back: if the worker does not read enough to make
// space for the rest of it, the session ends.
//
// # Trust
//
// Neither the list, which may lie in memory that other processes change meanwhile, nor the worker
// at the other end of the ring is trusted: the worker's messages are checked, and are only copied
// to memory of a caller that waits for them.
//
// # Locks
//
// Device.sending orders messages, Device.mu guards the tables of pending calls; a wait's own lock
// is acquired after both.
package compute

//go:generate go run ../gen/apigen -api ../opencl/opencl.api -client . -calls clCreateContext,clCreateCommandQueue,clCreateBuffer,clEnqueueFillBuffer,clEnqueueWriteBuffer,clEnqueueReadBuffer,clCreateProgramWithSource,clBuildProgram,clCreateKernel,clSetKernelArg,clEnqueueNDRangeKernel,clFinish,clGetDeviceInfo,clGetProgramInfo,clGetProgramBuildInfo,clGetKernelInfo,clGetKernelArgInfo,hello,release,snapshot,failed,output
