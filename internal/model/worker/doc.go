// Package worker implements the process that runs one engine with one version of a model, and the
// node's end of it.
//
// # Processes
//
// The node starts `outboard internal model-worker` ([Start]), which enters a sandbox, executes
// itself again ([Run]) and loads the model. It ends when its socket is closed. The node trusts no
// data that comes from it: a hostile model harms at most its worker.
//
// # Data path
//
// Requests and replies about tensors are frames in a ring of shared memory (internal/shm); the
// tensors themselves lie in segments, sealed memfds that the node creates, that both processes map,
// and that belong to one call at a time. The engine reads its inputs and writes its outputs there;
// the node copies inputs in and outputs out once. Outputs that do not fit are passed in a memfd
// that the worker creates. All other communication is messages of internal/ipc: loading, text,
// segments.
package worker
