package worker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// A tensorFake is an engine and its model, which has the input "x" and the output "y" of any length.
// infer computes y.
type tensorFake struct {
	infer func(ctx context.Context, x []byte) ([]byte, error)
}

func (*tensorFake) Name() string    { return "fake" }
func (*tensorFake) Version() string { return "1" }
func (*tensorFake) Close() error    { return nil }

func (f *tensorFake) Load(context.Context, engine.Source, engine.Options) (engine.Model, error) {
	return f, nil
}

func (*tensorFake) Info() engine.Info {
	return engine.Info{
		BatchDimension: true,
		Inputs:         []model.Signature{{Name: "x", Type: model.Uint8, Shape: []int64{-1}}},
		Outputs:        []model.Signature{{Name: "y", Type: model.Uint8, Shape: []int64{-1}}},
	}
}

func (f *tensorFake) Infer(ctx context.Context, inputs []model.Tensor, _ []string) ([]model.Tensor, error) {
	y, err := f.infer(ctx, inputs[0].Data)
	if err != nil {
		return nil, err
	}
	return []model.Tensor{{Name: "y", Type: model.Uint8, Shape: []int64{int64(len(y))}, Data: y}}, nil
}

// increment returns x with each byte incremented.
func increment(_ context.Context, x []byte) ([]byte, error) {
	y := slices.Clone(x)
	for i := range y {
		y[i]++
	}
	return y, nil
}

func input(x string) []model.Tensor {
	return []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{int64(len(x))}, Data: []byte(x)}}
}

// A bypassed is a worker with a bypass whose gate is open.
type bypassed struct {
	*BypassClient
	worker *Worker
	bypass *Bypass
	t      *testing.T
}

// openBypass starts a worker and opens a bypass. limit bounds a call.
func openBypass(t *testing.T, f *tensorFake, limit time.Duration) *bypassed {
	t.Helper()
	launch := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		return Run(ctx, socket, ProcessOptions{Engines: []engine.Engine{f}})
	})
	w, err := Start(t.Context(), Options{Launch: launch, Engine: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	b, err := w.OpenBypass(t.Context(), 1<<10, limit)
	if err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for _, f := range b.Files() {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, os.NewFile(uintptr(fd), f.Name()))
	}
	c, err := OpenBypassClient(files, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b.SetOpen(true)
	return &bypassed{c, w, b, t}
}

// await calls until the bypass takes a call, and returns its result.
func (b *bypassed) await(ctx context.Context, x string) (string, error) {
	b.t.Helper()
	for {
		y, err := b.Infer(ctx, input(x), []string{"y"})
		if errors.Is(err, ErrNoBypass) && !b.Broken() {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return "", err
		}
		return string(y[0].Data), nil
	}
}

func TestBypassComputes(t *testing.T) {
	b := openBypass(t, &tensorFake{increment}, time.Minute)
	for _, x := range []string{"a", "hello", string(bytes.Repeat([]byte{7}, 1<<10))} {
		want, _ := increment(t.Context(), []byte(x))
		for range 10 {
			if y, err := b.Infer(t.Context(), input(x), []string{"y"}); err != nil || !bytes.Equal(y[0].Data, want) || y[0].Shape[0] != int64(len(x)) {
				t.Fatalf("%v, %v", y, err)
			}
		}
	}
	if _, err := b.Infer(t.Context(), []model.Tensor{{Name: "z", Type: model.Uint8, Shape: []int64{1}, Data: []byte{1}}}, nil); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("an input that the model lacks: %v", err)
	}
	if c := b.bypass.Counts(); c.Succeeded != 30 || c.Failed != 1 || c.Rows != 10*(1+5+1<<10) || c.Time <= 0 {
		t.Errorf("counts: %+v", c)
	}
}

// The worker itself executes no call while the gate is closed, whatever the caller does.
func TestBypassGate(t *testing.T) {
	b := openBypass(t, &tensorFake{func(context.Context, []byte) ([]byte, error) {
		t.Error("the engine was called")
		return nil, nil
	}}, time.Minute)
	b.bypass.SetOpen(false)
	if _, err := b.Infer(t.Context(), input("a"), nil); !errors.Is(err, ErrNoBypass) {
		t.Errorf("a closed gate: %v", err)
	}
	b.last++
	if err := b.channel.send(&bypassRequest{request: request{op: opInfer, id: b.last}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.channel.receiveWithin(maxReceive, b.receive); err != nil || b.answer.outcome != bypassClosed {
		t.Errorf("a caller that ignores the gate: outcome %d, %v", b.answer.outcome, err)
	}
}

// Tensors that do not fit make the caller go through the node, and ask for more memory.
func TestBypassTooSmall(t *testing.T) {
	large := string(make([]byte, 128<<10))
	b := openBypass(t, &tensorFake{increment}, time.Minute)
	if _, err := b.Infer(t.Context(), input(large), nil); !errors.Is(err, ErrNoBypass) || !b.Broken() {
		t.Errorf("a large input: %v", err)
	}
	b = openBypass(t, &tensorFake{func(context.Context, []byte) ([]byte, error) { return []byte(large), nil }}, time.Minute)
	if _, err := b.Infer(t.Context(), input("a"), nil); !errors.Is(err, ErrNoBypass) || !b.Broken() {
		t.Errorf("a large output: %v", err)
	}
}

// waiting returns an engine whose calls for "w" wait for their context; each sends to entered when it
// begins and to ended when it ends.
func waiting() (f *tensorFake, entered, ended chan struct{}) {
	entered, ended = make(chan struct{}, 8), make(chan struct{}, 8)
	return &tensorFake{func(ctx context.Context, x []byte) ([]byte, error) {
		if string(x) != "w" {
			return increment(ctx, x)
		}
		entered <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}}, entered, ended
}

// A call whose context ends is cancelled in the engine, and the next one is computed.
func TestBypassCancels(t *testing.T) {
	f, entered, ended := waiting()
	b := openBypass(t, f, time.Hour)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := b.await(ctx, "w")
			result <- err
		}()
		<-entered
		if _, err := b.Infer(t.Context(), input("a"), nil); !errors.Is(err, ErrNoBypass) {
			t.Errorf("a second call at a time: %v", err)
		}
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-ended
		if y, err := b.await(t.Context(), "a"); y != "b" || err != nil {
			t.Errorf("the next call: %q, %v", y, err)
		}
	}
}

// A call without a deadline of its own ends at the bypass's.
func TestBypassTimeout(t *testing.T) {
	f, _, ended := waiting()
	b := openBypass(t, f, 30*time.Millisecond)
	if _, err := b.await(t.Context(), "w"); err == nil {
		t.Error("the call succeeded")
	}
	<-ended
}

// A caller that asks for more time than the model's configuration allows does not get it.
func TestBypassLimit(t *testing.T) {
	f, entered, ended := waiting()
	b := openBypass(t, f, 30*time.Millisecond)
	x := placed{Tensor: input("w")[0], offset: bypassHeader, size: 1}
	x.Data = nil
	copy(b.tensors.mem[bypassHeader:], "w")
	b.last++
	if err := b.channel.send(&bypassRequest{1 << 62, request{op: opInfer, id: b.last, outputOffset: 128, inputs: []placed{x}, outputs: []string{"y"}}}); err != nil {
		t.Fatal(err)
	}
	<-entered
	<-ended
}

// A caller that reads no replies loses its bypass: it does not keep the worker from ending it.
func TestBypassReadsNoReplies(t *testing.T) {
	b := openBypass(t, &tensorFake{increment}, time.Minute)
	b.bypass.SetOpen(false) // the shortest replies
	for err := error(nil); err == nil; {
		b.last++
		err = b.channel.send(&bypassRequest{request: request{op: opInfer, id: b.last}})
	}
	if reason, closed := b.ring.Closed(); !closed || reason != shm.Corrupt {
		t.Errorf("the ring is closed: %t, for the reason %v", closed, reason)
	}
	if err := b.bypass.Close(t.Context(), false); err != nil {
		t.Error(err)
	}
}

// A worker that ends makes the call in progress go through the node.
func TestBypassEndsWithWorker(t *testing.T) {
	f, entered, _ := waiting()
	b := openBypass(t, f, time.Hour)
	result := make(chan error, 1)
	go func() {
		_, err := b.await(t.Context(), "w")
		result <- err
	}()
	<-entered
	b.worker.Kill(errSilent)
	if err := <-result; err == nil {
		t.Error("the call succeeded")
	}
	<-b.bypass.Done()
	if _, err := b.worker.OpenBypass(t.Context(), 1, time.Minute); err == nil {
		t.Error("a bypass to a worker that has ended")
	}
}

// The end of a bypass waits for the call in progress, and loses none.
func TestBypassDrains(t *testing.T) {
	entered, proceed := make(chan struct{}), make(chan struct{})
	b := openBypass(t, &tensorFake{func(ctx context.Context, x []byte) ([]byte, error) {
		close(entered)
		<-proceed
		return increment(ctx, x)
	}}, time.Hour)
	var calling, closing sync.WaitGroup
	calling.Go(func() {
		if y, err := b.await(t.Context(), "a"); y != "b" || err != nil {
			t.Errorf("the call in progress: %q, %v", y, err)
		}
	})
	<-entered
	closing.Go(func() {
		if err := b.bypass.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
	for b.gate.isOpen() {
		time.Sleep(time.Millisecond)
	}
	close(proceed)
	calling.Wait()
	closing.Wait()
	if _, err := b.Infer(t.Context(), input("a"), nil); !errors.Is(err, ErrNoBypass) || !b.Broken() {
		t.Errorf("after the end: %v", err)
	}
	if c := b.bypass.Counts(); c.Succeeded != 1 {
		t.Errorf("counts after the end: %+v", c)
	}
}

// FuzzBypass: whatever a process sends, the engine gets tensors that are as the model wants them, and
// that the process can't change, and the outputs are within the shared memory.
func FuzzBypass(f *testing.F) {
	x := placed{Tensor: model.Tensor{Name: "x", Type: model.Uint8, Shape: []int64{3}}, offset: 64, size: 3}
	f.Add(encoded(&bypassRequest{time.Second, request{op: opInfer, id: 1, outputOffset: 128, inputs: []placed{x}, outputs: []string{"y"}}}))
	f.Add(encoded(&bypassRequest{-1, request{op: opInfer, outputOffset: 1 << 63, inputs: []placed{x, x}}}))
	f.Add(encoded(&bypassRequest{time.Second, request{op: opInfer, outputOffset: 0, inputs: []placed{x}}}))
	x.offset = 1<<64 - 2
	f.Add(encoded(&bypassRequest{time.Second, request{op: opCancel, inputs: []placed{x}}}))
	shared, changed := make([]byte, 256), false
	fake := &tensorFake{func(ctx context.Context, x []byte) ([]byte, error) {
		for i := range shared {
			shared[i] = 0xff
		}
		changed = slices.Contains(x, 0xff)
		return increment(ctx, x)
	}}
	f.Fuzz(func(t *testing.T, body []byte) {
		clear(shared)
		s := &bypassServer{
			bypassMemory: bypassMemory{tensors: &segment{mem: shared}, gate: make(gate, wordsSize), counts: &segment{mem: make([]byte, wordsSize)}},
			tensorServer: &tensorServer{model: fake}, info: fake.Info(), limit: time.Minute, watch: callWatch{life: t.Context(), abandoned: wordAt(shared, 0)},
		}
		s.gate.set(true)
		defer s.watch.stop()
		var r bypassRequest
		if d := wire.NewDecoder(body); r.decode(&d) != nil {
			return
		}
		changed = false
		answer := s.execute(&r)
		if changed {
			t.Error("the process can change the inputs of the engine")
		}
		if answer.failure == errFrame.Error() && len(answer.outputs) > 0 || answer.failure != "" && answer.outputs != nil {
			t.Errorf("a failure with outputs: %+v", answer)
		}
		for i := range answer.outputs {
			p := &answer.outputs[i]
			if data, err := p.within(shared); err != nil || p.offset < bypassHeader || slices.ContainsFunc(data, func(b byte) bool { return b != 1 }) {
				t.Errorf("output %+v, %v", p, err)
			}
		}
	})
}

// Memory that a process passes is refused unless it has the size and the seals of a bypass.
func TestBypassRefusesOtherFiles(t *testing.T) {
	b := openBypass(t, &tensorFake{increment}, time.Minute)
	all := b.bypass.files
	for name, files := range map[string][]*os.File{
		"too few":            {all[fileRing], all[fileTensors]},
		"in another order":   {all[fileTensors], all[fileRing], all[fileGate]},
		"no gate":            {all[fileRing], all[fileTensors], all[fileTensors]},
		"no shared segment":  {all[fileRing], all[fileGate], all[fileGate]},
		"the counters' file": {all[fileRing], all[fileTensors], all[fileGate], all[fileCounters]},
	} {
		var own []*os.File
		for _, f := range files {
			d, err := helper.Duplicate(f)
			if err != nil {
				t.Fatal(err)
			}
			own = append(own, d)
		}
		if _, err := openBypassMemory(own, shm.Client); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
