package shm

import (
	"os"
	"os/exec"
	"testing"
)

// TestMain lets the test binary be the other process of the benchmarks.
func TestMain(m *testing.M) {
	switch os.Getenv("SHM_TEST_PEER") {
	case "echo":
		os.Exit(peer(func(w *Ring, b []byte) {
			room, err := w.Reserve(len(b))
			if err == nil {
				copy(room, b)
				w.Commit(len(b))
			}
		}))
	case "sink":
		os.Exit(peer(func(*Ring, []byte) {}))
	case "source":
		os.Exit(source())
	}
	os.Exit(m.Run())
}

func peer(f func(w *Ring, b []byte)) int {
	w, err := Open(os.NewFile(3, "ring"), Worker)
	if err != nil {
		return 1
	}
	for {
		b, err := w.Next(1)
		if err != nil {
			return 0
		}
		b = b[:min(len(b), 256<<10)]
		f(w, b)
		w.Release(len(b))
	}
}

func source() int {
	w, err := Open(os.NewFile(3, "ring"), Worker)
	if err != nil {
		return 1
	}
	data := make([]byte, 256<<10)
	for {
		b, err := w.Reserve(1)
		if err != nil {
			return 0
		}
		w.Commit(copy(b, data))
	}
}

// startPeer runs the worker's end in another process.
func startPeer(b *testing.B, what string) *Ring {
	b.Helper()
	r, err := Create(DefaultArea)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHM_TEST_PEER="+what)
	cmd.ExtraFiles = []*os.File{r.File()}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Close(Done)
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
		r.Unmap()
	})
	return r
}

func BenchmarkPingPong64(b *testing.B) {
	r := startPeer(b, "echo")
	for b.Loop() {
		if _, err := r.Reserve(64); err != nil {
			b.Fatal(err)
		}
		r.Commit(64)
		if _, err := r.Next(64); err != nil {
			b.Fatal(err)
		}
		r.Release(64)
	}
}

// BenchmarkWrite256MiB and BenchmarkRead256MiB copy from and to ordinary memory, as
// clEnqueueWriteBuffer and clEnqueueReadBuffer do.
func BenchmarkWrite256MiB(b *testing.B) {
	r := startPeer(b, "sink")
	data := make([]byte, 256<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		for rest := data; len(rest) > 0; {
			room, err := r.Reserve(1)
			if err != nil {
				b.Fatal(err)
			}
			n := copy(room[:min(len(room), 256<<10)], rest)
			r.Commit(n)
			rest = rest[n:]
		}
	}
}

func BenchmarkRead256MiB(b *testing.B) {
	r := startPeer(b, "source")
	data := make([]byte, 256<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		for rest := data; len(rest) > 0; {
			got, err := r.Next(1)
			if err != nil {
				b.Fatal(err)
			}
			n := copy(rest, got[:min(len(got), 256<<10)])
			r.Release(n)
			rest = rest[n:]
		}
	}
}
