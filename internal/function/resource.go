package function

import "context"

// Resources finds what a function imports. One that was not allowed gets an error, whose
// text the function sees: it should name the line of the manifest that is missing.
type Resources interface {
	// Import finds what a name means: "function:F", "function:APP/F", "arena:N",
	// "bucket:N", "secret:N", "device:N". What it returns is released once.
	Import(ctx context.Context, name string) (Resource, error)
}

// A Resource is what an import brought: a Callee, a Bucket, a Secret, a Device or a
// *SharedArena.
// One call uses it, in one goroutine.
type Resource interface {
	// Release gives it up. Nothing is called afterwards.
	Release()
}

// A Callee is another function.
type Callee interface {
	Resource
	// Call runs it. The request has the entry "", the caller's arena and the depth. The
	// response is used until the next call or Release.
	Call(ctx context.Context, q Request) (Response, error)
}

// A Bucket is a key-value bucket.
type Bucket interface {
	Resource
	// Get returns a key's value and revision; 0 says that there is none.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Txn does all of a transaction or nothing. It returns the number of the condition
	// that failed, or -1 when all was done. The bytes are the caller's: they are only
	// read during the call, and not trusted.
	Txn(ctx context.Context, encoded []byte) (failed int, err error)
}

// A Secret is bytes that the manifest names and does not hold.
type Secret interface {
	Resource
	Bytes() []byte
}

// A Device is a leased device that runs kernels.
type Device interface {
	Resource
	// Info describes it, as JSON.
	Info() []byte
	// Do does a list of commands and waits for them. Both the list and the function's
	// memory, of which memory gives a part, are only used during the call; the list is
	// not trusted, and others may change it meanwhile. There may be something printed
	// beside an error.
	Do(ctx context.Context, list []byte, memory func(at, size uint32) ([]byte, bool)) (DeviceResult, error)
}

// A DeviceResult is what a device did.
type DeviceResult struct {
	// Read is what its commands read, Printed what its kernels printed.
	Read, Printed []byte
	// Moved is how many bytes went to the device and came back.
	Moved int64
}

// A SharedArena is an arena that is imported by name. It holds the arena.
type SharedArena struct {
	Arena *Arena
	// ReadOnly keeps what the importer writes to itself, for its call.
	ReadOnly bool
}

// Release gives up the hold.
func (s *SharedArena) Release() { _ = s.Arena.Close() }
