package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// A plain is a module in the unmodified engine, with the host functions that a call needs: a
// request and a response. One goroutine uses it.
type plain struct {
	engine   wazero.Runtime
	compiled wazero.CompiledModule

	request, response []byte
}

// hostModule is the module of the host functions that our functions import.
const hostModule = "outboard"

func newPlain(ctx context.Context, module []byte) (*plain, error) {
	p := &plain{engine: wazero.NewRuntime(ctx)}
	err := p.prepare(ctx, module)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *plain) prepare(ctx context.Context, module []byte) (err error) {
	if p.compiled, err = p.engine.CompileModule(ctx, module); err != nil {
		return err
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, p.engine); err != nil {
		return err
	}
	host := p.engine.NewHostModuleBuilder(hostModule)
	for _, f := range p.compiled.ImportedFunctions() {
		if from, name, _ := f.Import(); from == hostModule {
			host.NewFunctionBuilder().WithGoModuleFunction(p.function(name), f.ParamTypes(), f.ResultTypes()).Export(name)
		}
	}
	_, err = host.Instantiate(ctx)
	return err
}

// function returns a host function. Host functions that a small call does not need do nothing.
func (p *plain) function(name string) api.GoModuleFunc {
	switch name {
	case "request_size":
		return func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = uint64(len(p.request)) }
	case "request_read":
		return func(_ context.Context, m api.Module, stack []uint64) {
			n := min(uint32(stack[1]), uint32(len(p.request)))
			m.Memory().Write(uint32(stack[0]), p.request[:n])
			stack[0] = uint64(n)
		}
	case "request_offset":
		return func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = math.MaxUint64 } // it lies in no arena
	case "response_write":
		return func(_ context.Context, m api.Module, stack []uint64) {
			b, _ := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
			p.response = append(p.response, b...)
			stack[0] = 0
		}
	}
	return func(_ context.Context, _ api.Module, stack []uint64) {
		if len(stack) > 0 {
			stack[0] = 0
		}
	}
}

// start creates an instance, initialises it and calls it once.
func (p *plain) start(ctx context.Context, request []byte) (api.Module, error) {
	m, err := p.engine.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		return nil, err
	}
	p.request, p.response = request, nil
	status, err := m.ExportedFunction("handle").Call(ctx)
	if err == nil && !slices.Equal(status, []uint64{0}) {
		err = fmt.Errorf("the function failed: %s", p.response)
	}
	return m, err
}

func (p *plain) close() error { return p.engine.Close(context.Background()) }
