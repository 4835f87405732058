package opencl

import (
	"slices"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/shm"
)

// FuzzDispatch feeds a worker messages that no client of ours would send. It may
// refuse them; it must not crash, nor believe a size that it was not given.
func FuzzDispatch(f *testing.F) {
	add := func(op uint16, args encoder) { f.Add(op, args.encode(nil), session.Alone|session.WantReply) }
	add(opClCreateContext, &argsClCreateContext{Devices: []uint64{2}, Result: 300})
	add(opClCreateBuffer, &argsClCreateBuffer{Context: 256, Flags: 1, Size: 1 << 60, Result: 300})
	add(opClCreateImage, &argsClCreateImage{Context: 256, ImageFormat: make([]byte, 8), ImageDesc: make([]byte, 72), Result: 300})
	add(opClSetKernelArg, &argsClSetKernelArg{Kernel: 260, ArgSize: 8, Form: formMem, Object: 258})
	add(opClEnqueueNDRangeKernel, &argsClEnqueueNDRangeKernel{CommandQueue: 257, Kernel: 260, WorkDim: 3, GlobalWorkSize: []uint64{1}})
	add(opClEnqueueReadBufferRect, &argsClEnqueueReadBufferRect{CommandQueue: 257, Buffer: 258, BlockingRead: 1, BufferOrigin: []uint64{0, 0, 0}, Region: []uint64{0, 1, 1}})
	add(opClEnqueueReadImage, &argsClEnqueueReadImage{CommandQueue: 257, Image: 258, BlockingRead: 1, Origin: []uint64{0, 0, 0}, Region: []uint64{1 << 40, 1 << 40, 1}})
	add(opClCreateProgramWithBinary, &argsClCreateProgramWithBinary{Context: 256, DeviceList: []uint64{2}, Lengths: []uint64{1 << 63}, Binary: []byte{1}, Result: 300})
	add(opClCompileProgram, &argsClCompileProgram{Program: 259, InputHeaders: []uint64{259}, IncludeNames: []byte{1}})
	add(opRelease, &argsRelease{Kind: uint32(kindMem), Object: 258})
	add(opHello, &argsHello{Protocol: 1})
	f.Fuzz(func(t *testing.T, op uint16, body []byte, flags uint16) {
		w, ring := fuzzWorker(t)
		defer ring.Unmap()
		_ = ring.Close(shm.Done) // what it sends goes nowhere
		call := uint32(0)
		if flags &= session.Alone | session.WantReply; flags&session.WantReply != 0 {
			call = 1
		}
		m := session.Message{Header: session.Header{Op: op, Flags: flags, Call: call, Serial: 9}, Body: slices.Clone(body)}
		w.record(&m)
		_ = w.dispatch(&m)
		w.helpers.group.Wait()
	})
}

// fuzzWorker has one object of each kind: 256 to 261.
func fuzzWorker(t *testing.T) (*Worker, *shm.Ring) {
	ring, err := shm.Create(1 << 14)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeDriver{}
	w, err := New(Options{Driver: fake.table(), Ring: ring, Memory: 1 << 20, Host: 1 << 20, IncludeDir: t.TempDir(), Log: session.NewLog(1 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.client.in.Close()
		w.frames.current.Close()
	})
	for i, e := range []struct {
		op   uint16
		args encoder
	}{
		{opClCreateContext, &argsClCreateContext{Devices: []uint64{2}, Result: 256}},
		{opClCreateCommandQueue, &argsClCreateCommandQueue{Context: 256, Device: 2, Result: 257}},
		{opClCreateBuffer, &argsClCreateBuffer{Context: 256, Flags: 1, Size: 64, Result: 258}},
		{opClCreateProgramWithSource, &argsClCreateProgramWithSource{Context: 256, Source: []byte("x"), Result: 259}},
		{opClCreateKernel, &argsClCreateKernel{Program: 259, KernelName: text{"k", true}, Result: 260}},
		{opClCreateUserEvent, &argsClCreateUserEvent{Context: 256, Result: 261}},
	} {
		if err := w.dispatch(&session.Message{Header: session.Header{Op: e.op, Serial: uint64(i + 1)}, Body: e.args.encode(nil)}); err != nil {
			t.Fatal(err)
		}
	}
	w.memObjects.elements[258] = 4
	return w, ring
}
