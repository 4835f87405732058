package function

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// hostModule is the module that functions import the request from.
const hostModule = "outboard"

// slotKey is the key of a context under which host functions find their slot. A
// slot's context is made once, so a call makes none.
type slotKey struct{}

func slotOf(ctx context.Context) *slot {
	s, _ := ctx.Value(slotKey{}).(*slot) // it is always there
	return s
}

// exit is how a guest's exit ends its call: the instance is not closed for it, so
// it can be reset as after any other call.
type exit struct{ code uint32 }

func (e *exit) Error() string { return fmt.Sprintf("exit status %d", e.code) }

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// provide makes the modules that functions import.
func provide(ctx context.Context, r wazero.Runtime) error {
	requests := r.NewHostModuleBuilder(hostModule)
	export(requests, "request_size", requestSize, nil, i32)
	export(requests, "request_read", requestRead, []api.ValueType{i32, i32, i32}, i32)
	export(requests, "response_write", responseWrite, []api.ValueType{i32, i32}, i32)
	provideImports(requests)
	_, err := requests.Instantiate(ctx)
	return errors.Join(err, provideWASI(ctx, r))
}

func export(b wazero.HostModuleBuilder, name string, f api.GoModuleFunc, params []api.ValueType, results ...api.ValueType) {
	b.NewFunctionBuilder().WithGoModuleFunction(f, params, results).Export(name)
}

func invocationOf(ctx context.Context) *invocation { return &slotOf(ctx).call }

func requestSize(ctx context.Context, _ api.Module, stack []uint64) {
	stack[0] = uint64(len(invocationOf(ctx).request))
}

func requestRead(ctx context.Context, _ api.Module, stack []uint64) {
	c := invocationOf(ctx)
	stack[0] = c.copyOut(c.request, stack)
}

// copyOut copies a part of b to the function's memory; stack has address, size and offset in b. It
// returns the number of bytes.
func (c *invocation) copyOut(b []byte, stack []uint64) uint64 {
	to, size, offset := uint32(stack[0]), uint32(stack[1]), uint32(stack[2])
	rest := b[min(uint64(offset), uint64(len(b))):]
	rest = rest[:min(uint64(size), uint64(len(rest)))]
	if m := c.slot.instance.Memory(); m == nil || !m.Write(to, rest) {
		return 0 // outside of the memory
	}
	c.copied += int64(len(rest))
	c.slot.meter.chargeBytes(len(rest))
	return uint64(len(rest))
}

func responseWrite(ctx context.Context, m api.Module, stack []uint64) {
	from, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
	stack[0] = 1
	if ok && invocationOf(ctx).appendResponse(from) {
		stack[0] = 0
	}
}

// The error codes of WASI preview 1 that are returned here.
const (
	wasiOK     = 0
	wasiBadFD  = 8
	wasiFault  = 21
	wasiNoSup  = 58
	lastStdFD  = 2
	wasiModule = wasi_snapshot_preview1.ModuleName
)

// provideWASI takes the engine's WASI preview 1 and replaces what would change an
// instance in a way that a reset does not undo (descriptors and the exit), and what
// takes as long as its arguments say.
func provideWASI(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasiModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	export(b, "proc_exit", procExit, []api.ValueType{i32})
	export(b, "random_get", randomGet, []api.ValueType{i32, i32}, i32)
	export(b, "fd_close", fdClose, []api.ValueType{i32}, i32)
	export(b, "fd_renumber", unsupported, []api.ValueType{i32, i32}, i32)
	export(b, "fd_fdstat_set_flags", unsupported, []api.ValueType{i32, i32}, i32)
	_, err := b.Instantiate(ctx)
	return err
}

func procExit(_ context.Context, _ api.Module, stack []uint64) {
	panic(&exit{uint32(stack[0])}) //nolint:forbidigo // the engine's way for a host function to end a call
}

// randomGet fills memory with random bytes in chunks, so that the deadline is met even for all of a
// memory.
func randomGet(ctx context.Context, m api.Module, stack []uint64) {
	to, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
	stack[0] = wasiFault
	if !ok {
		return
	}
	s := slotOf(ctx)
	for len(to) > 0 && s.meter.mayContinue() {
		n, _ := rand.Read(to[:min(len(to), 1<<20)]) // it never fails
		to = to[n:]
		s.meter.chargeBytes(n * 16) // it is slower than copying
	}
	stack[0] = wasiOK
}

// fdClose says that a standard stream is closed and leaves it open for the next call.
func fdClose(_ context.Context, _ api.Module, stack []uint64) {
	if fd := uint32(stack[0]); fd <= lastStdFD {
		stack[0] = wasiOK
	} else {
		stack[0] = wasiBadFD
	}
}

func unsupported(_ context.Context, _ api.Module, stack []uint64) { stack[0] = wasiNoSup }
