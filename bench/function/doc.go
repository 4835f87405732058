// Command function measures functions and workflows against the same code without
// them, and writes docs/bench/function.md and function.json.
//
// The references are native Go handlers and programs, and the engine (wazero) as it
// is. Both sides of a row take turns in one process; where memory is measured each has
// processes of its own. Requests go through all that a tenant's process has: gateway,
// function, bucket and the pool's state, but in this process, so that both ends of a
// connection share it in all ways.
//
// -only NAME measures some sections, -profile DIR shows where each section spends its
// time while it measures. The report is written after each section, so that a run that is cut short
// leaves what it measured.
//
// BENCH_QUICK=1 keeps it under a minute, at the price of wide intervals.
package main
