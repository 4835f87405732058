package guesttest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/guesttest"
)

// A function that adds on a device, and its test.
func ExampleHost_Device() {
	add := func(b []byte) ([]byte, error) {
		gpu, err := guest.ImportDevice("gpu")
		if err != nil {
			return nil, err
		}
		numbers := gpu.BufferOf(b)
		gpu.Program(`kernel void add(global uchar *a, uchar n) { a[get_global_id(0)] += n; }`).
			Launch("add", guest.Items(len(b)), numbers, uint8(3))
		return numbers.Read(0, len(b))
	}
	host := guesttest.Start(exampleT{})
	host.Device("gpu").Kernels["add"] = func(l guesttest.Launch) {
		for i := range l.Global[0] {
			l.Args[0][i] += l.Args[1][0]
		}
	}
	sums, err := add([]byte{1, 2, 3})
	fmt.Printf("%d %v\n", sums, err)
	// Output: [4 5 6] <nil>
}

// exampleT stands for a test in an example.
type exampleT struct{ testing.TB }

func (exampleT) Cleanup(func()) {}

// device is a device whose kernel "keep" keeps what it was launched with.
func device(t *testing.T) (*guest.Device, *[]guesttest.Launch) {
	t.Helper()
	var all []guesttest.Launch
	guesttest.Start(t).Device("gpu").Kernels["keep"] = func(l guesttest.Launch) { all = append(all, l) }
	gpu, err := guest.ImportDevice("gpu")
	if err != nil {
		t.Fatal(err)
	}
	return gpu, &all
}

func TestArguments(t *testing.T) {
	gpu, launches := device(t)
	b := gpu.BufferOf([]byte("buffer"))
	gpu.Program("").Launch("keep", guest.Items(4, 5, 6).Groups(2, 5, 1), b, guest.Local(3), int8(-1), uint8(200), int16(-2), uint16(3),
		int32(-4), uint32(5), int64(-6), uint64(7), float32(1.5), math.Pi, []byte("any"))
	if err := gpu.Wait(); err != nil {
		t.Fatal(err)
	}
	little := binary.LittleEndian
	want := []guesttest.Launch{{
		Global: []int{4, 5, 6}, Local: []int{2, 5, 1},
		Args: [][]byte{
			[]byte("buffer"),
			{0, 0, 0},
			{255},
			{200},
			{254, 255},
			{3, 0},
			{252, 255, 255, 255},
			{5, 0, 0, 0},
			{250, 255, 255, 255, 255, 255, 255, 255},
			{7, 0, 0, 0, 0, 0, 0, 0},
			little.AppendUint32(nil, math.Float32bits(1.5)),
			little.AppendUint64(nil, math.Float64bits(math.Pi)),
			[]byte("any"),
		},
	}}
	if diff := cmp.Diff(want, *launches); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is wrong shows where something is waited for, and is forgotten then.
func TestDeviceErrors(t *testing.T) {
	for want, use := range map[string]func(gpu *guest.Device, p *guest.Program, b *guest.Buffer){
		"argument 1 is of a type that no kernel knows": func(_ *guest.Device, p *guest.Program, b *guest.Buffer) { p.Launch("keep", guest.Items(1), b, 5) },
		"want one to three dimensions, groups in as many": func(_ *guest.Device, p *guest.Program, _ *guest.Buffer) {
			p.Launch("keep", guest.Items(1, 2).Groups(1))
		},
		"launch none: want one to three dimensions":               func(_ *guest.Device, p *guest.Program, _ *guest.Buffer) { p.Launch("none", guest.Items()) },
		"program 1 has no kernel none":                            func(_ *guest.Device, p *guest.Program, _ *guest.Buffer) { p.Launch("none", guest.Items(1)) },
		"5 bytes at 4 lie outside of buffer 2":                    func(_ *guest.Device, _ *guest.Program, b *guest.Buffer) { b.Write(4, []byte("hello")) },
		"40000 bytes at 0 lie outside of buffer 2":                func(_ *guest.Device, _ *guest.Program, b *guest.Buffer) { b.Write(0, make([]byte, 40000)) },
		"8 bytes at 18446744073709551615 lie outside of buffer 2": func(_ *guest.Device, _ *guest.Program, b *guest.Buffer) { b.Write(-1, make([]byte, 8)) },
		"has no size that a buffer may have":                      func(gpu *guest.Device, _ *guest.Program, _ *guest.Buffer) { gpu.Buffer(0) },
	} {
		gpu, _ := device(t)
		program, buffer := gpu.Program(""), gpu.Buffer(8)
		if err := gpu.Wait(); err != nil {
			t.Fatal(err)
		}
		use(gpu, program, buffer)
		if err := gpu.Wait(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if b, err := buffer.Read(0, 8); err != nil || len(b) != 8 {
			t.Errorf("after %s: %v", want, err)
		}
	}
}

// Data may be changed once Write has returned, however much there is.
func TestWritesAreKept(t *testing.T) {
	for _, size := range []int{8, 40000} {
		gpu, _ := device(t)
		data := bytes.Repeat([]byte("a"), size)
		b := gpu.BufferOf(data)
		clear(data)
		if got, err := b.Read(size-4, 4); err != nil || string(got) != "aaaa" {
			t.Errorf("of %d: got %q, %v", size, got, err)
		}
		if b.Size() != size {
			t.Errorf("got %d", b.Size())
		}
	}
}

// Much is sent before it is waited for.
func TestManyCommands(t *testing.T) {
	gpu, launches := device(t)
	p := gpu.Program("")
	for range 10_000 {
		p.Launch("keep", guest.Items(1))
	}
	if n := len(*launches); n < 5000 || n == 10_000 {
		t.Errorf("%d of 10000 launches were sent already", n)
	}
	if err := gpu.Wait(); err != nil || len(*launches) != 10_000 {
		t.Errorf("%d launches, %v", len(*launches), err)
	}
}

// What a device has is gone with its import.
func TestDeviceIsImportedAnew(t *testing.T) {
	host := guesttest.Start(t)
	host.Device("gpu").Info = `{"node": "harbour"}`
	if _, err := guest.ImportDevice("other"); err == nil {
		t.Error("what is not there was imported")
	}
	gpu, err := guest.ImportDevice("gpu")
	if err != nil {
		t.Fatal(err)
	}
	b := gpu.Buffer(8)
	b.Free()
	if _, err := b.Read(0, 8); err == nil {
		t.Error("a buffer that was freed is read")
	}
	b = gpu.Buffer(8)
	if err := errors.Join(gpu.Wait(), gpu.Wait()); err != nil {
		t.Fatal(err)
	}
	gpu.Close()
	if held := host.OpenImports(); len(held) != 0 {
		t.Errorf("%v are held", held)
	}
	if _, err := b.Read(0, 8); err == nil {
		t.Error("a buffer outlives its import")
	}
	if info, err := gpu.Info(); err != nil || string(info) != `{"node": "harbour"}` {
		t.Errorf("got %s, %v", info, err)
	}
}
