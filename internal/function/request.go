package function

import (
	"time"

	"github.com/outboard-run/outboard"
)

// DefaultEntry is the export that a call runs unless it names another.
const DefaultEntry = "handle"

// Request is one call.
type Request struct {
	// Entry is the export to call. "" means DefaultEntry.
	Entry string
	// Body is the request that the function reads. It must not change during the call.
	Body []byte
	// Stream is the rest of the request, behind Body, and takes the response in parts; nil: Body is
	// all of the request, and Response.Body all of the response.
	Stream Stream
	// Place says that the request is this part of Arena. Body is empty then.
	Place *Extent
	// Arena is the memory that the steps of an execution share. The function sees it in
	// its window, if it has one. The call holds it; a response that lies in it lives as
	// long as its other holders have it.
	Arena *Arena
	// Bound is the budget to which the memory of Arena is charged after the call, which fails if
	// the budget is exhausted; nil charges nothing.
	Bound Bound
	// ReadOnly makes the mapping of the arena private: writes are discarded at the end of the call.
	ReadOnly bool
	// Meta returns metadata of the request by name: a header, a path parameter, "method",
	// "execution". nil has none.
	Meta func(name string) (string, bool)
	// Resources resolves the names that the function may import. nil has none.
	Resources Resources
	// Depth is how many calls of functions by functions lead here. A Callee passes it on.
	Depth int
}

// Response is the result of a call. There is one for a failed call, too, with its output and cost.
type Response struct {
	// Body is the answer.
	Body []byte
	// Streamed says that the response went to the request's Stream, or its beginning if the call
	// failed. Body is nil then.
	Streamed bool
	// Place says that the answer is this part of the request's arena. Body is nil then.
	Place *Extent
	// Stdout and Stderr are the guest's output there.
	Stdout, Stderr Output
	// Imports are the imports of the call, in the order of their first import.
	Imports []Import
	// Cost is the cost of the call.
	Cost Cost
}

// Import is the use of one imported name in a call.
type Import struct {
	Name string
	// Calls are how many host calls it took, the import among them.
	Calls int
	// Time is how long the host calls took, and Waited how much of it the imports themselves took:
	// a device may have to be waited for.
	Time, Waited time.Duration
	// Pointer and Copied are bytes that were passed by place in an arena, and that were copied.
	Pointer, Copied int64
	// Err is why the last import of this name was refused, "" if it was not.
	Err string
}

// Start is how the instance of a call was obtained.
type Start int

// The starts.
const (
	// Reset is an instance that served before and was reset.
	Reset Start = iota
	// Clone is a new instance over the image.
	Clone
)

// Cost is the cost of a call.
type Cost struct {
	Start Start
	// Ran is how long it ran, without waiting for a slot and without the reset.
	Ran time.Duration
	// Fuel is how many instructions were charged.
	Fuel int64
	// Memory is how large the instance's memory was at the end.
	Memory outboard.Bytes
	// Pointer and Copied are the bytes of the request, the response and the imports: passed by
	// place in an arena, and copied.
	Pointer, Copied int64
}
