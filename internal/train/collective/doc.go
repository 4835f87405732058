// Package collective computes the collective operations of training (all-reduce, all-gather,
// and the like) over ranks that reach each other by byte streams.
//
// A schedule lists, step by step, the elements that a rank sends, receives and combines, and its
// peers; it is a value, made by a pure function, so it can be checked without a network. A [Group]
// executes schedules over connections, detects ranks that make different calls, and ends all calls
// when a rank is lost.
//
// The algorithms are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective
// Communication Operations in MPICH" (2005), and Patarasuk and Yuan's ring (2009).
package collective
