package function

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
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

// exit is the error by which a guest's exit ends its call. The instance is not closed, so it can be
// reset as after any other call.
type exit struct{ code uint32 }

func (e *exit) Error() string { return fmt.Sprintf("exit status %d", e.code) }

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// provide instantiates the modules that functions import.
func provide(ctx context.Context, r wazero.Runtime) error {
	requests := r.NewHostModuleBuilder(hostModule)
	export(requests, "request_size", requestSize, nil, i32)
	export(requests, "request_read", requestRead, []api.ValueType{i32, i32, i32}, i32)
	export(requests, "response_write", responseWrite, []api.ValueType{i32, i32}, i32)
	provideImports(requests)
	provideStreams(requests)
	_, err := requests.Instantiate(ctx)
	return errors.Join(err, provideWASI(ctx, r), provideNN(ctx, r), provideText(ctx, r))
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
