package compute

import "testing"

// ready is a holder that has a program and a buffer.
func ready(b *testing.B, size uint64) *Holder {
	b.Helper()
	h := holder(b, dial(b, Options{Shared: true}, 0))
	do(b, h, new(list).program(1, source, "").buffer(1, size), nil)
	return h
}

// BenchmarkLaunch is one kernel of 1024 items, and its 4 KiB read back.
func BenchmarkLaunch(b *testing.B) {
	h := ready(b, 4096)
	l := new(list).launch(1, "add", 1024, 0, 2).mem(1).scalar("four").read(1, 0, 4096)
	for b.Loop() {
		do(b, h, l, nil)
	}
}

// BenchmarkLaunches is 100 kernels in one list.
func BenchmarkLaunches(b *testing.B) {
	h, l := ready(b, 4096), new(list)
	for range 100 {
		l.launch(1, "add", 1024, 0, 2).mem(1).scalar("four")
	}
	for b.Loop() {
		do(b, h, l, nil)
	}
}

// BenchmarkRoundTrip takes 4 MiB to the device and back.
func BenchmarkRoundTrip(b *testing.B) {
	const size = 4 << 20
	h, memory := ready(b, size), memoryOf(make([]byte, size))
	l := new(list).writeFrom(1, 0, 0, size).readTo(1, 0, 0, size)
	b.SetBytes(2 * size)
	for b.Loop() {
		do(b, h, l, memory)
	}
}

// BenchmarkHolder is what a call on a lease that is kept takes before it does something.
func BenchmarkHolder(b *testing.B) {
	d := dial(b, Options{Shared: true}, 0)
	l := new(list).program(1, source, "").buffer(1, 64).read(1, 0, 64)
	for b.Loop() {
		h, err := d.Holder()
		if err != nil {
			b.Fatal(err)
		}
		do(b, h, l, nil)
		h.Close()
	}
}

func BenchmarkDecode(b *testing.B) {
	l := new(list)
	for range 1000 {
		l.launch(1, "add", 1024, 0, 2).mem(1).scalar("four")
	}
	b.SetBytes(int64(len(*l)))
	for b.Loop() {
		if _, err := Decode(*l); err != nil {
			b.Fatal(err)
		}
	}
}
