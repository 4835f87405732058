package function

import "context"

// Resources resolves the names that a function imports. The function sees the text of an error,
// which should name the line that is missing in the manifest.
type Resources interface {
	// Import resolves a name: "function:F", "function:APP/F", "arena:N", "bucket:N", "secret:N",
	// "device:N", "model:N". The resource is released exactly once.
	Import(ctx context.Context, name string) (Resource, error)
}

// Resource is the result of Import: a Callee, a Bucket, a Secret, a Device, a Model, a TextModel or
// a *SharedArena. One call uses it, in one goroutine.
type Resource interface {
	// Release frees the resource. No method is called afterwards.
	Release()
}

// Callee is another function.
type Callee interface {
	Resource
	// Call runs the function. The request has the entry "", the caller's arena and the depth. The
	// response is used until the next call or Release.
	Call(ctx context.Context, q Request) (Response, error)
}

// Bucket is a key-value bucket.
type Bucket interface {
	Resource
	// Get returns a key's value and revision, which is 0 if the key has no value.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Txn commits a transaction or nothing of it. It returns the index of the condition that
	// failed, or -1 if the transaction was committed. The bytes belong to the caller: they are only
	// read during the call, and not trusted.
	Txn(ctx context.Context, encoded []byte) (failed int, err error)
}

// Secret is bytes that the manifest names and does not hold.
type Secret interface {
	Resource
	Bytes() []byte
}

// Device is a leased device that runs kernels.
type Device interface {
	Resource
	// Info returns the device's description, as JSON.
	Info() []byte
	// Do executes a list of commands and waits for them. Both the list and the function's memory,
	// of which memory returns a part, are only used during the call; the list is not trusted, and
	// may change meanwhile. There may be printed text beside an error.
	Do(ctx context.Context, list []byte, memory func(at, size uint32) ([]byte, bool)) (DeviceResult, error)
}

// DeviceResult is the result of a list of commands.
type DeviceResult struct {
	// Read is the data that its commands read, Printed the text that its kernels printed.
	Read, Printed []byte
	// Moved is how many bytes went to the device and came back.
	Moved int64
}

// SharedArena is an arena that is imported by name. It holds the arena.
type SharedArena struct {
	Arena *Arena
	// ReadOnly makes the mapping private: writes are discarded at the end of the call.
	ReadOnly bool
}

// Release drops the reference.
func (s *SharedArena) Release() { _ = s.Arena.Close() }
