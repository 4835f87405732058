// Package worker is the process that runs one engine with one version of a model, and the
// node's end of it.
//
// # Processes
//
// The node starts `outboard internal model-worker` ([Start]), which enters a sandbox, executes
// itself again ([Run]) and loads the model. It ends when its socket is closed. The node trusts
// nothing that comes from it: a hostile model harms at most its worker.
//
// # Data's way
//
// Requests and replies about tensors are frames in a ring of shared memory (internal/shm); the
// tensors themselves lie in segments, sealed memfds that the node creates, that both processes
// map, and that belong to one call at a time. The engine reads its inputs and writes its
// outputs there; the node copies inputs in and outputs out once. Outputs that do not fit are
// passed as a memfd of the worker's own. Everything else are messages of internal/ipc: loading,
// text, segments.
package worker
