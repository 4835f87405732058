// Package wasm runs users' policies: WebAssembly modules that decide about one call at a time,
// within bounds on memory, time and steps.
//
// A module exports its memory and a function on_request, and optionally on_response. It imports
// functions of "outboard", and may import WASI, which provides no files, no network, no clock and
// no randomness. Every call starts from the module's state after _initialize: the changes of a call
// are undone.
//
// docs/policies.md describes the functions for authors of modules.
package wasm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"google.golang.org/grpc/codes"
)

// Options bound a module. The zero value selects the defaults.
type Options struct {
	// Memory is the greatest number of pages of 64 KiB; 0 means 256, which is 16 MiB.
	Memory int
	// Steps is roughly the number of instructions that a call may execute; 0 means 10 million. They
	// are counted at the entry of each function and at each iteration of a loop.
	Steps int64
	// Timeout bounds the duration of a call; 0 means 50 ms.
	Timeout time.Duration
	// Instances is the number of idle instances kept for later calls; 0 means 4.
	Instances int
}

func (o *Options) setDefaults() {
	if o.Memory == 0 {
		o.Memory = 256
	}
	if o.Steps == 0 {
		o.Steps = 10_000_000
	}
	if o.Timeout == 0 {
		o.Timeout = 50 * time.Millisecond
	}
	if o.Instances == 0 {
		o.Instances = 4
	}
}

// Starting may take longer than a call, since the runtime of the module's language starts.
const (
	startTimeout = 10 * time.Second
	startSteps   = 1 << 32
	maxCode      = 32 << 20
)

// A Module is a compiled module. It may be used by several goroutines.
type Module struct {
	options  Options
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	globals  []string // exports of the globals to restore after a call
	responds bool

	mu   sync.Mutex
	idle []*instance
}

// Compile checks, instruments and compiles a module, and instantiates it once. Its resources
// are released when the module is garbage-collected.
func Compile(code []byte, o Options) (*Module, error) {
	o.setDefaults()
	if len(code) > maxCode {
		return nil, fmt.Errorf("module of %d bytes: %d is the most", len(code), maxCode)
	}
	counted, globals, err := instrument(code)
	if err != nil {
		return nil, err
	}
	m := &Module{options: o, globals: globals}
	m.runtime = wazero.NewRuntimeWithConfig(context.Background(), wazero.NewRuntimeConfig().
		WithCloseOnContextDone(true).
		WithMemoryLimitPages(uint32(o.Memory)).
		WithCoreFeatures(api.CoreFeaturesV2.SetEnabled(api.CoreFeatureSIMD, false)))
	runtime.AddCleanup(m, func(r wazero.Runtime) { _ = r.Close(context.Background()) }, m.runtime)
	if err := m.compile(counted); err != nil {
		_ = m.runtime.Close(context.Background())
		return nil, err
	}
	return m, nil
}

func (m *Module) compile(code []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err != nil {
		return fmt.Errorf("WASI: %w", err)
	}
	if err := host(ctx, m.runtime); err != nil {
		return err
	}
	var err error
	if m.compiled, err = m.runtime.CompileModule(ctx, code); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return err
	}
	first, err := m.start()
	if err != nil {
		return fmt.Errorf("start the module: %w", err)
	}
	m.release(first)
	return nil
}

// check verifies the module's exports.
func (m *Module) check() error {
	request := m.compiled.ExportedFunctions()["on_request"]
	switch {
	case request == nil:
		return errors.New("the module exports no function on_request")
	case len(request.ParamTypes())+len(request.ResultTypes()) > 0:
		return errors.New("on_request takes and returns something: it is a function of nothing that returns nothing")
	case m.compiled.ExportedMemories()["memory"] == nil:
		return errors.New(`the module exports no memory "memory"`)
	}
	response := m.compiled.ExportedFunctions()["on_response"]
	if response == nil {
		return nil
	}
	m.responds = true
	if p := response.ParamTypes(); len(response.ResultTypes()) > 0 || len(p) != 1 || p[0] != api.ValueTypeI32 {
		return errors.New("on_response is a function of an i32, the status code, that returns nothing")
	}
	return nil
}

// Responds reports whether the module has an on_response.
func (m *Module) Responds() bool { return m.responds }

// A Call is a call that a module decides about.
type Call interface {
	// Head returns a field of the head; "" and false if there is none.
	Head(name string) (string, bool)
	// Metadata returns the first value of a key; "" and false if there is none.
	Metadata(key string) (string, bool)
	// SetMetadata sets a key to a single value, and reports whether that is allowed.
	SetMetadata(key, value string) bool
	// Payload returns the encoded request.
	Payload() ([]byte, error)
}

// A Verdict is a module's decision. The zero value admits the call.
type Verdict struct {
	Denied  bool
	Code    codes.Code
	Message string
}

// Request returns the module's verdict on a call. An error means that there is none: the module
// trapped or exceeded a limit.
func (m *Module) Request(c Call) (Verdict, error) {
	v := &visit{call: c}
	err := m.visit(v, func(i *instance) api.Function { return i.request })
	return v.verdict, err
}

// Response passes the status code of an ended call to the module's on_response, if it has one.
func (m *Module) Response(c Call, code codes.Code) error {
	if !m.responds {
		return nil
	}
	v := &visit{call: c, ended: true}
	return m.visit(v, func(i *instance) api.Function { return i.response }, uint64(code))
}

func (m *Module) visit(v *visit, function func(*instance) api.Function, arguments ...uint64) error {
	i, err := m.acquireInstance()
	if err != nil {
		return fmt.Errorf("start the module: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), visitKey{}, v), m.options.Timeout)
	defer cancel()
	i.steps.Set(uint64(m.options.Steps))
	if _, err := function(i).Call(ctx, arguments...); err != nil {
		_ = i.module.Close(context.Background())
		return i.why(err, ctx)
	}
	m.reset(i)
	return nil
}

// An instance is a started module, with a copy of its state after the start.
type instance struct {
	module            api.Module
	request, response api.Function
	steps             api.MutableGlobal
	globals           []api.MutableGlobal
	values            []uint64
	memory            []byte
}

// why returns the reason that a call failed.
func (i *instance) why(err error, ctx context.Context) error { //nolint:revive // the error is the subject
	switch {
	case int64(i.steps.Get()) < 0:
		return errors.New("the module took too many steps")
	case ctx.Err() != nil:
		return errors.New("the module took too long")
	}
	return fmt.Errorf("the module trapped: %w", firstLine(err))
}

func (m *Module) acquireInstance() (*instance, error) {
	m.mu.Lock()
	if n := len(m.idle); n > 0 {
		i := m.idle[n-1]
		m.idle = m.idle[:n-1]
		m.mu.Unlock()
		return i, nil
	}
	m.mu.Unlock()
	return m.start()
}

func (m *Module) release(i *instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.idle) < m.options.Instances {
		m.idle = append(m.idle, i)
		return
	}
	_ = i.module.Close(context.Background())
}

func (m *Module) start() (*instance, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize").WithStdout(io.Discard).WithStderr(io.Discard)
	module, err := m.runtime.InstantiateModule(ctx, m.compiled, config)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("_initialize took longer than %v", startTimeout)
	}
	if err != nil {
		return nil, firstLine(err)
	}
	i := &instance{module: module, request: module.ExportedFunction("on_request"), response: module.ExportedFunction("on_response")}
	if err := i.remember(m.globals); err != nil {
		_ = module.Close(ctx)
		return nil, err
	}
	return i, nil
}

// remember saves the state of the instance, for reset.
func (i *instance) remember(globals []string) error {
	for _, name := range globals {
		g, ok := i.module.ExportedGlobal(name).(api.MutableGlobal)
		if !ok {
			return fmt.Errorf("global %s is not to be seen", name)
		}
		i.globals = append(i.globals, g)
		i.values = append(i.values, g.Get())
	}
	i.steps = i.globals[len(i.globals)-1]
	memory := i.module.Memory()
	bytes, ok := memory.Read(0, memory.Size())
	if !ok {
		return errors.New("the memory is not to be read")
	}
	i.memory = append([]byte(nil), bytes...)
	return nil
}

// reset restores the state after the start and releases the instance. Memory that has grown cannot
// shrink: then the instance is closed instead.
func (m *Module) reset(i *instance) {
	memory := i.module.Memory()
	if int(memory.Size()) != len(i.memory) || !memory.Write(0, i.memory) {
		_ = i.module.Close(context.Background())
		return
	}
	for n, g := range i.globals {
		g.Set(i.values[n])
	}
	m.release(i)
}
