// Package recording joins what the processes of a program and their workers recorded of a run
// into one trace.
//
// Each process that uses the API has a file, written through a mapping by the driver library
// (cmd/libsession/record): chunks of 64 KiB, each of one stream. A stream belongs to a thread
// (its calls, and times of the device that the thread learnt), to a link (what the link's worker
// reported), or to the names of devices. The files are read as they are found, also after the
// program was killed: a chunk counts its valid bytes.
//
// Join reads all streams at the same time, in the order of the calls. What is joined to a call
// comes later in other streams; Join reads ahead there, at most a bounded number of entries.
package recording
