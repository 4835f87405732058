// Command function measures functions and workflows against the same code outside of functions, and
// writes docs/bench/function.md and function.json.
//
// The references are native Go handlers and programs, and the unmodified engine (wazero). Both
// sides of a row take turns in one process; where memory is measured each has its own processes.
// Requests pass all parts of a tenant's process: gateway, function, bucket and the pool's state,
// but in this process, so that both ends of a connection share it in all cases.
//
// -only NAME measures some sections, -profile DIR writes profiles of each section while it is
// measured. The report is written after each section, so that an interrupted run keeps its
// measurements.
//
// BENCH_QUICK=1 keeps it under a minute, at the price of wide intervals.
package main
