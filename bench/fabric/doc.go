// Command fabric measures calls over the fabric against grpc-go, grpc-go behind a
// layer-7 proxy with the same policies, and raw unix sockets, and writes
// docs/bench/fabric.md and fabric.json.
//
// Clients, servers and proxies are processes of their own: the command starts itself
// again in the role that a [spec] describes, and sends it commands over its standard
// input. All variants of a row run at the same time and are measured in turn, so that
// other load of the machine affects all of them.
//
// -only NAME measures some sections, -profile DIR shows where each process spends its
// time.
//
// BENCH_QUICK=1 keeps it within some minutes, at the price of wide intervals.
package main
