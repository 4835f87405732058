package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero/api"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/function"
)

// instances measures how many live instances, each of which has served a call, fit into memory.
func (b *bench) instances(ctx context.Context) error {
	module, err := b.guests.file(ctx, gateGuest)
	if err != nil {
		return err
	}
	slots := crowd{Module: module, Cache: b.guests.cache(), Instances: 400}
	plain := crowd{Module: module, Cache: b.guests.cache(), Instances: 50, Plain: true}
	if b.Quick {
		slots.Instances, plain.Instances = 100, 12
	}
	all, err := b.turns(ctx, b.Rounds(5, 1), b.perGiB(slots), b.perGiB(plain))
	if err != nil {
		return err
	}
	b.Row(paired.NewRow("live instances of the least Go module that served a call", "per GiB", "plain instances", all[0].values, all[1].values, paired.Goal{MinRatio: 5}))
	return nil
}

// perGiB returns a measurement that makes a separate process create a crowd.
func (b *bench) perGiB(c crowd) measurement {
	return func(ctx context.Context) (float64, error) {
		role, err := json.Marshal(c)
		if err != nil {
			return 0, err
		}
		out, err := b.launch(ctx, string(role))
		if err != nil {
			return 0, err
		}
		var size float64
		err = json.Unmarshal(out, &size)
		return (1 << 30) / size, err
	}
}

// A crowd is a number of instances that live at the same time.
type crowd struct {
	Module, Cache string
	Instances     int
	Plain         bool
}

// gather creates the instances and returns the memory of each in bytes.
func (c *crowd) gather(ctx context.Context) (float64, error) {
	module, err := os.ReadFile(c.Module)
	if err != nil {
		return 0, err
	}
	if c.Plain {
		return c.gatherPlain(ctx, module)
	}
	return c.gatherSlots(ctx, module)
}

func (c *crowd) gatherPlain(ctx context.Context, module []byte) (size float64, err error) {
	p, err := newPlain(ctx, module)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	before, err := resident()
	if err != nil {
		return 0, err
	}
	var all []api.Module
	for range c.Instances {
		m, err := p.start(ctx, []byte("key7"))
		if err != nil {
			return 0, err
		}
		all = append(all, m)
	}
	after, err := resident()
	runtime.KeepAlive(all)
	return float64(after-before) / float64(c.Instances), err
}

func (c *crowd) gatherSlots(ctx context.Context, module []byte) (size float64, err error) {
	r, err := function.Open(ctx, function.Options{CacheDir: c.Cache})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := r.Deploy(ctx, module, function.Settings{Name: "gate", Limits: function.Limits{Concurrency: c.Instances}})
	if err != nil {
		return 0, err
	}
	before, err := resident()
	if err != nil {
		return 0, err
	}
	if err := c.callAll(ctx, f); err != nil {
		return 0, err
	}
	if slots, _ := f.Idle(); slots != c.Instances {
		return 0, fmt.Errorf("%d instances are live, want %d", slots, c.Instances)
	}
	after, err := resident()
	return float64(after-before) / float64(c.Instances), err
}

// callAll calls the function concurrently, once for each instance: no call ends before all have
// begun.
func (c *crowd) callAll(ctx context.Context, f *function.Function) error {
	var calls sync.WaitGroup
	var came atomic.Int64
	open, errs := make(chan struct{}), make([]error, c.Instances)
	gate := sync.OnceFunc(func() { close(open) })
	wait := func(string) (string, bool) {
		if came.Add(1) == int64(c.Instances) {
			gate()
		}
		<-open
		return "", false
	}
	for i := range c.Instances {
		calls.Go(func() {
			if _, errs[i] = f.Call(ctx, function.Request{Body: []byte("key7"), Meta: wait}); errs[i] != nil {
				gate() // the calls must not wait for an instance that failed
			}
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// resident returns the memory of this process in bytes; memory shared with other processes counts
// in parts.
func resident() (int, error) {
	runtime.GC()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, err
	}
	return proportional(text)
}

// proportional parses the proportional set size.
func proportional(smaps []byte) (int, error) {
	for line := range bytes.Lines(smaps) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
			n, err := strconv.Atoi(string(number))
			return n << 10, err
		}
	}
	return 0, errors.New("no Pss in smaps_rollup")
}
