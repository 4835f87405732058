package function

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/function/optimize"
	"github.com/outboard-run/outboard/internal/function/tempfs"
)

// reseedName is the export that gets a random number before each call.
const reseedName = "outboard_reseed"

// slot holds one instance. One goroutine uses it at a time.
type slot struct {
	limits   *Limits
	ctx      context.Context //nolint:containedctx // it lives as long as the slot, and only says which one it is
	instance api.Module
	memory   memory
	meter    meter
	globals  []api.MutableGlobal
	entries  map[string]api.Function
	reseed   api.Function

	stack [2]uint64 // of arguments and results

	stdout, stderr output
	view           view
	watch          image.Watch
	files          *tempfs.FS // of the call; nil: none yet
	visits         int        // of the call so far
	quiet          bool       // the call took no page fault
	broken         error      // why the slot can't be reset

	call invocation
}

// invocation is the state of the call that a slot runs: its request, response and imports.
type invocation struct {
	slot      *slot
	caller    context.Context //nolint:containedctx // the call's, for what host functions wait for
	waiting   context.Context //nolint:containedctx // as above, with the deadline; made when it is needed
	cancel    context.CancelFunc
	until     time.Time // waiting's deadline
	request   []byte
	stream    Stream // nil: none
	requestAt *Extent
	arena     *Arena
	readOnly  bool
	depth     int
	about     func(name string) (string, bool)
	resources Resources
	imports   importTable
	nn        nnState
	text      textState

	result     []byte // of the last host call
	response   []byte
	responseAt *Extent
	flushed    int      // bytes of the response that went to stream
	tooLarge   bool     // the response
	allocated  []Extent // of the arena, in this call

	pointer, copied int64 // bytes
}

// newSlot instantiates a version without running its initialisation. Without an image it becomes a
// template, whose memory is as the module declares it.
func newSlot(v *version, img *image.Image) (*slot, error) {
	s := &slot{limits: &v.settings.Limits, entries: make(map[string]api.Function)}
	s.call.slot = s
	s.ctx = context.WithValue(context.Background(), slotKey{}, s)
	s.stdout.limit, s.stderr.limit = int(s.limits.Output), int(s.limits.Output)
	space, err := v.runtime.pool.Acquire(v.reserve)
	if err != nil {
		return nil, err
	}
	s.view.space = space
	s.memory = memory{space: space, limit: v.most, total: int(s.limits.Memory), yield: s.yield}
	if img != nil {
		s.memory.imageSize = img.Size()
		s.view.window = v.window
		err = space.Load(img)
	}
	if err == nil {
		err = s.instantiate(v)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *slot) instantiate(v *version) error {
	var err error
	ctx := experimental.WithMemoryAllocator(s.ctx, &s.memory)
	if s.instance, err = v.runtime.engine.InstantiateModule(ctx, v.compiled, s.config(v)); err != nil {
		return fmt.Errorf("instantiate: %w", err)
	}
	s.meter.global, _ = s.instance.ExportedGlobal(optimize.MeterName).(api.MutableGlobal)
	for _, g := range v.code.Globals {
		global, _ := s.instance.ExportedGlobal(g.Name).(api.MutableGlobal)
		s.globals = append(s.globals, global)
	}
	s.reseed = s.instance.ExportedFunction(reseedName)
	return nil
}

func (s *slot) config(v *version) wazero.ModuleConfig {
	c := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithStdout(&s.stdout).WithStderr(&s.stderr).
		WithRandSource(rand.Reader).WithSysWalltime().WithSysNanotime().
		WithNanosleep(s.sleep).
		WithOsyield(func() {}).
		WithArgs(v.settings.Args...)
	for _, e := range v.settings.Env {
		c = c.WithEnv(e.Name, e.Value)
	}
	return c
}

// watchedVisits is how often a call yields before it unlocks its thread. By then a scan is cheap
// compared with the call.
const watchedVisits = 32

// yield is called by code that used up its slice of fuel.
func (s *slot) yield() bool {
	if s.visits++; s.visits > watchedVisits {
		s.watch.Leave()
	}
	return s.meter.yield()
}

func (s *slot) sleep(ns int64) {
	s.watch.Leave()
	s.meter.sleep(time.Duration(ns))
}

func (s *slot) close() {
	if s.instance != nil {
		_ = s.instance.Close(context.Background())
	}
	s.memory.space.Release()
}

// entry returns an exported function that can be an entry.
func (s *slot) entry(name string) (api.Function, error) {
	if f := s.entries[name]; f != nil {
		return f, nil
	}
	f := s.instance.ExportedFunction(name)
	if f == nil {
		return nil, outboard.Errorf(outboard.NotFound, "", "no entry %q: the module does not export it", name)
	}
	if d := f.Definition(); len(d.ParamTypes()) != 0 || len(d.ResultTypes()) > 1 {
		return nil, outboard.Errorf(outboard.Invalid, "", "export %q is no entry: it must take nothing and return nothing or one i32", name)
	}
	s.entries[name] = f
	return f, nil
}

// run calls an export under the limits. The error is nil, a *LimitError, an *exit, a
// trap of the engine's, or errCanceled.
func (s *slot) run(ctx context.Context, f api.Function, l *Limits, args ...uint64) (result uint32, err error) {
	s.meter.start(ctx, l)
	s.memory.refused, s.call.tooLarge, s.visits = false, false, 0
	s.watch.Begin()
	if s.reseed != nil {
		err = s.seed()
	}
	s.stack = [2]uint64{}
	copy(s.stack[:], args)
	if err == nil {
		err = f.CallWithStack(s.ctx, s.stack[:])
	}
	s.quiet = s.watch.End()
	return uint32(s.stack[0]), s.failureCause(err)
}

func (s *slot) seed() error {
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // it never fails
	return s.reseed.CallWithStack(s.ctx, []uint64{binary.LittleEndian.Uint64(seed[:])})
}

// failureCause maps the engine's error to the cause. A guest that gets no memory fails in its own
// way, so a failed call in which growth was refused is attributed to the memory limit.
func (s *slot) failureCause(err error) error {
	switch {
	case s.call.tooLarge:
		return s.limits.responseError()
	case err == nil:
		return nil
	case s.meter.stopped != nil:
		return s.meter.stopped
	case s.memory.refused:
		return fmt.Errorf("%w; the call ended with: %w", s.limits.memoryError(), err)
	}
	if closed, ok := errors.AsType[*sys.ExitError](err); ok {
		return &exit{closed.ExitCode()}
	}
	return readable(err)
}

// reset restores the slot to its state before the first call.
func (s *slot) reset(r *image.Resetter, values []uint64) (image.Stats, error) {
	s.call = invocation{slot: s, imports: s.call.imports}
	s.dropFiles()
	switch {
	case s.broken != nil:
		return image.Stats{}, s.broken
	case s.instance.IsClosed():
		return image.Stats{}, errors.New("the instance is closed")
	}
	done, err := r.Reset(s.memory.space, s.memory.size, s.quiet)
	if err != nil {
		return done, err
	}
	if err := s.shrinkMemory(); err != nil {
		return done, err
	}
	for i, g := range s.globals {
		g.Set(values[i])
	}
	return done, nil
}

// shrinkMemory restores the size of the memory to that of the image.
func (s *slot) shrinkMemory() error {
	if s.memory.size == s.memory.imageSize {
		return nil
	}
	s.memory.shrinking = true
	_, ok := s.instance.Memory().Grow(1)
	s.memory.shrinking = false
	if now := s.instance.Memory().Size(); !ok || int(now) != s.memory.imageSize {
		return fmt.Errorf("memory is of %d bytes after shrinking to %d", now, s.memory.imageSize)
	}
	return nil
}
