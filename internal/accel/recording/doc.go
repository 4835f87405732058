// Package recording joins the recordings that a program's processes and their workers made of a run
// into one trace.
//
// Each process that uses the API has a file, written by the driver library
// (cmd/libsession/record): chunks of 64 KiB, each of one stream. A stream belongs to a thread (its
// calls, and the device's times that the thread learnt), to a link (the reports of the link's
// worker), or to the names of devices. The first chunk of a stream is mapped and has its newest
// records. The files can be read even after the program was killed: a chunk counts its valid bytes.
//
// Join reads all streams at the same time, in the order of the calls. The records that it joins to
// a call come later, in other streams; Join reads ahead there, at most a bounded number of entries.
package recording
