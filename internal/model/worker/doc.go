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
//
// # Bypass
//
// A process of a tenant that is the only client of a model calls the worker itself, through a ring
// and a segment that the two share: the node has created both, and passes the descriptors
// ([Worker.OpenBypass], [OpenBypassClient]). A word that only the node can write to, the gate, tells
// the two whether calls are permitted at present; the node closes it as soon as another client's
// request arrives, and the process then sends its calls through the node, whose queue forms batches
// and knows priorities. The worker executes one call of a bypass at a time. It does not trust the
// process: it validates the request, and the engine uses copies of the tensors. A call that ends
// without a reply goes through the node, so the end of a bypass loses no call.
package worker
