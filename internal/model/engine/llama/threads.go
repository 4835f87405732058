package llama

import (
	"slices"

	"github.com/ebitengine/purego"
)

// A threadPool is a ggml_threadpool: threads that compute the micro-batches of one context. Without
// it, the library starts and ends its threads with each micro-batch.
type threadPool struct {
	lib     *library
	address uintptr
	release uintptr // ggml_threadpool_free
}

// Offsets in ggml_threadpool_params (ggml.h), behind the mask of 512 processors.
const (
	poolThreads   = 512
	poolPoll      = 520
	poolParamSize = 528
	// defaultPoll is the value of poll that ggml_threadpool_params_init sets, which serves to
	// recognize the layout.
	defaultPoll = 50
)

// newThreadPool starts threads that sleep between micro-batches. With the library's default they
// would spin there for about 0.2 s and occupy cores that are needed to deliver the next token to
// its client. It returns nil where one thread suffices, or where the library's build offers no
// pools.
func (l *library) newThreadPool(threads int) *threadPool {
	create, release := l.backendFunction("ggml_threadpool_new"), l.backendFunction("ggml_threadpool_free")
	if threads < 2 || create == 0 || release == 0 {
		return nil
	}
	memory := pin(make([]byte, maxParams))
	defer memory.free()
	l.call(fnThreadParams, memory.address(), uintptr(threads))
	p := params(memory.values[:poolParamSize])
	if p.int(poolThreads) != threads || p.int(poolPoll) != defaultPoll {
		return nil
	}
	p.setInt(poolPoll, 0)
	address, _, _ := purego.SyscallN(create, memory.address())
	if address == 0 {
		return nil
	}
	return &threadPool{lib: l, address: address, release: release}
}

// backendFunction returns the address of a function of the processor's backend, 0 if it has none.
func (l *library) backendFunction(name string) uintptr {
	if slices.Contains(l.functions[fnThreadParams:], 0) {
		return 0 // a build that hides the functions of ggml
	}
	const processor = 0 // GGML_BACKEND_DEVICE_TYPE_CPU
	device := l.call(fnDeviceByType, processor)
	if device == 0 {
		return 0
	}
	symbol := newCString(name)
	defer symbol.free()
	return l.call(fnRegistryFunction, l.call(fnDeviceRegistry, device), symbol.address())
}

// attach makes a llama_context compute prompts and tokens with the pool's threads.
func (p *threadPool) attach(context uintptr) {
	if p != nil {
		p.lib.call(fnAttachThreads, context, p.address, p.address)
	}
}

// free ends the threads. The context must be freed before.
func (p *threadPool) free() {
	if p != nil {
		purego.SyscallN(p.release, p.address)
	}
}
