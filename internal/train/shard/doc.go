// Package shard plans how the tensors of a model are divided over a mesh of devices, and which
// collectives convert one division into another.
//
// A Layout says for each dimension of the mesh which part of a tensor each of its devices has: all
// of it (Replicated), a part along an axis (Split), or a summand of it (Partial). These are the
// shardings of GSPMD (Xu and others, 2021, arXiv 2105.04663) and of OneFlow (Yuan and others, 2021,
// arXiv 2110.15032). Convert finds the cheapest collectives between two layouts by Dijkstra's
// algorithm over layouts.
//
// # Gradients
//
// Each device differentiates its own computation; the loss is the sum of the results of all
// devices. The gradient of a tensor then has the Dual of its layout: a replicated tensor has a
// partial gradient and a partial one a replicated gradient. The backward pass of a conversion is
// the conversion between the duals, in the opposite direction: its adjoint. Data parallelism,
// tensor parallelism (Shoeybi and others, 2019, arXiv 1909.08053) and sequence parallelism
// (Korthikanti and others, 2022, arXiv 2205.05198) follow from that rule alone.
//
// # Propagation
//
// Best chooses a Strategy for each operator of a Graph, so that the sum of the times of operators,
// conversions and reductions of gradients is least. On a chain of operators that is a shortest path
// (Viterbi). If tensors are used several times the search keeps one path for each combination of
// strategies of all operators whose output is still needed: exact for every acyclic graph, with
// work that grows exponentially with the number of such operators, which is two in a residual
// network.
//
// The package is pure: it neither measures nor sends anything. python/outboard/shard.py executes
// its strategies.
package shard
