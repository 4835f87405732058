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

// An exit is how a guest's exit ends its call: the instance is not closed for it, so
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

func requestSize(ctx context.Context, _ api.Module, stack []uint64) {
	stack[0] = uint64(len(slotOf(ctx).request))
}

func requestRead(ctx context.Context, _ api.Module, stack []uint64) {
	s := slotOf(ctx)
	stack[0] = s.give(s.request, stack)
}

// give copies a part of b to where a function wants it: address, size, offset. It returns
// how much it was.
func (s *slot) give(b []byte, stack []uint64) uint64 {
	to, size, offset := uint32(stack[0]), uint32(stack[1]), uint32(stack[2])
	rest := b[min(uint64(offset), uint64(len(b))):]
	rest = rest[:min(uint64(size), uint64(len(rest)))]
	if m := s.instance.Memory(); m == nil || !m.Write(to, rest) {
		return 0 // the guest named memory that it does not have
	}
	s.copied += int64(len(rest))
	s.meter.move(len(rest))
	return uint64(len(rest))
}

func responseWrite(ctx context.Context, m api.Module, stack []uint64) {
	from, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
	stack[0] = 1
	if ok && slotOf(ctx).respond(from) {
		stack[0] = 0
	}
}

// The answers of WASI preview 1 that are given here.
const (
	wasiOK     = 0
	wasiBadFD  = 8
	wasiFault  = 21
	wasiNoSup  = 58
	lastStdFD  = 2
	wasiModule = wasi_snapshot_preview1.ModuleName
)

// provideWASI takes the engine's WASI preview 1 and replaces what would change an
// instance in a way that a reset does not undo: descriptors and the exit.
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

// randomGet draws from the host's randomness, piece by piece, so that a request for all
// of a memory still meets the deadline.
func randomGet(ctx context.Context, m api.Module, stack []uint64) {
	to, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
	stack[0] = wasiFault
	if !ok {
		return
	}
	s := slotOf(ctx)
	for len(to) > 0 && s.meter.goOn() {
		n, _ := rand.Read(to[:min(len(to), 1<<20)]) // it never fails
		to = to[n:]
		s.meter.move(n * 16) // it takes longer than moving
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
