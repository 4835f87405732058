// Command fabric measures calls over the fabric against grpc-go, grpc-go behind a
// layer-7 proxy with the same policies, and raw unix sockets, and writes
// docs/bench/fabric.md and fabric.json.
//
// Everything that calls, serves or stands between is a process of its own: the
// command starts itself anew in the role that a [spec] describes, and tells it what
// to do over its standard input. All ways of a row are up at the same time and
// take turns, so that what else the machine does hits all of them.
//
// -only NAME measures some sections, -profile DIR shows where each process spends its
// time.
//
// BENCH_QUICK=1 keeps it within some minutes, at the price of wide intervals.
package main
