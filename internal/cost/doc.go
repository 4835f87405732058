// Package cost evaluates graphs of tasks on serial resources: it computes when each task is
// complete, for many settings of the resources at once.
//
// # Model
//
// A resource serves one task at a time, in the order in which tasks are added: a thread, one
// direction of a link, a queue of a device. A task begins when the resource is free and the
// tasks that it depends on are complete. It occupies the resource for its cost, times the
// resource's slowdown, and for its units (bytes, say) at the resource's rate. It is complete one
// latency after it has left the resource: latency is propagation, during which the next task is
// already served.
//
//	start(i)    = max(free(r), done(j) for each j that i depends on)
//	free(r)     = start(i) + cost(i) * slowdown(r) + units(i) * perUnit(r)
//	done(i)     = free(r) + latency(r)
//
// These equations are linear in the max-plus algebra (Baccelli, Cohen, Olsder and Quadrat,
// "Synchronization and Linearity", 1992). Every result is therefore monotone: no resource that
// becomes slower makes any task complete earlier.
//
// A processor with several cores is a [Capacity]: a bound on the work that all tasks that use it
// can have done together. List scheduling on k cores would be exact and is not monotone (Graham's
// anomalies), and it would need the tasks in the order of their start, which differs between
// settings.
//
// # Settings
//
// A setting is one choice of latencies, rates and slowdowns for all resources: one link of many,
// say. An [Evaluator] computes all settings in one pass over the tasks, each as a lane of
// vectors. Memory depends on the number of settings and of points that are live, not on the
// number of tasks.
//
// Times are integers, in picoseconds, so results do not depend on the order of additions, on the
// machine or on the number of processors. The package has no clock and does no I/O.
package cost
