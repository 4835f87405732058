package shm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/need"
)

// buildC compiles the C end and its test program.
func buildC(t testing.TB) string {
	t.Helper()
	need.Program(t, "gcc")
	bin := filepath.Join(t.TempDir(), "echo")
	dir := filepath.Join("..", "..", "cmd", "libsession")
	cmd := exec.CommandContext(t.Context(), "gcc", "-std=c11", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-pthread",
		"-o", bin, filepath.Join(dir, "ring", "ring.c"), filepath.Join(dir, "testdata", "echo.c"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return bin
}

// startC runs the C program on the client end of a new ring; its end closes the
// ring, as the owner of a real client does.
func startC(t testing.TB, bin string, area int, args ...string) (worker *Ring, output func() string) {
	t.Helper()
	f, err := NewFile(area)
	if err != nil {
		t.Fatal(err)
	}
	worker, err = Open(f, Worker)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err != nil {
			worker.Close(1 + Reason(outboard.SessionLost))
		}
		ended <- err
	}()
	t.Cleanup(func() { cmd.Process.Kill(); worker.Unmap() })
	return worker, func() string {
		t.Helper()
		if err := <-ended; err != nil {
			t.Errorf("C program: %v\n%s", err, out.String())
		}
		return strings.TrimSpace(out.String())
	}
}

func pattern(at uint64) byte { return byte(at * 2654435761 >> 13) }

func TestCEchoesRandomPieces(t *testing.T) {
	bin := buildC(t)
	for _, area := range []int{MinArea, 64 << 10, DefaultArea} {
		t.Run(fmt.Sprint(area), func(t *testing.T) {
			n := min(200*area, 32<<20)
			worker, output := startC(t, bin, area, "echo", fmt.Sprint(n), fmt.Sprint(rand.Uint64()))
			done := make(chan bool)
			go func() {
				defer close(done)
				for at := 0; at < n; {
					b, err := worker.Reserve(1)
					if err != nil {
						t.Error(err)
						return
					}
					m := min(n-at, len(b), 1+rand.IntN(area))
					for i := range m {
						b[i] = pattern(uint64(at + i))
					}
					worker.Commit(m)
					at += m
				}
			}()
			sinkGo(t, worker, n)
			<-done
			output()
		})
	}
}

func sinkGo(t *testing.T, r *Ring, n int) {
	t.Helper()
	for at := 0; at < n; {
		b, err := r.Next(1)
		if err != nil {
			t.Error(err)
			return
		}
		m := min(n-at, len(b), 1+rand.IntN(r.Area()))
		for i := range m {
			if b[i] != pattern(uint64(at+i)) {
				t.Errorf("byte %d differs", at+i)
				r.Close(Corrupt)
				return
			}
		}
		r.Release(m)
		at += m
	}
}

func TestCStreamsOneWay(t *testing.T) {
	bin, n := buildC(t), 32<<20
	t.Run("to Go", func(t *testing.T) {
		worker, output := startC(t, bin, DefaultArea, "source", fmt.Sprint(n), "1")
		sinkGo(t, worker, n)
		if _, err := worker.Next(1); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v", err)
		}
		output()
	})
	t.Run("to C", func(t *testing.T) {
		worker, output := startC(t, bin, DefaultArea, "sink", fmt.Sprint(n), "1")
		for at := 0; at < n; {
			b, err := worker.Reserve(1)
			if err != nil {
				t.Fatal(err)
			}
			m := min(n-at, len(b), 1+rand.IntN(DefaultArea))
			for i := range m {
				b[i] = pattern(uint64(at + i))
			}
			worker.Commit(m)
			at += m
		}
		output()
	})
}

func TestCKickAndTimeLimit(t *testing.T) {
	_, output := startC(t, buildC(t), MinArea, "kick")
	output()
}

func TestCIsWokenByClose(t *testing.T) {
	worker, output := startC(t, buildC(t), MinArea, "closed")
	worker.Close(1 + Reason(outboard.LeaseLost))
	if got, want := output(), fmt.Sprint(2+uint32(outboard.LeaseLost)); got != want {
		t.Errorf("closed word %s, want %s", got, want)
	}
}

func TestCNoticesALyingPeer(t *testing.T) {
	worker, output := startC(t, buildC(t), MinArea, "closed")
	worker.out.direction.head.Store(MinArea + 1)
	ringAlways(worker.out.data, worker.out.dataSleeper)
	if got, want := output(), fmt.Sprint(1+uint32(Corrupt)); got != want {
		t.Errorf("closed word %s, want %s", got, want)
	}
}

func TestCOpenRefusesUnsealedMemory(t *testing.T) {
	fd, err := unix.MemfdCreate("t", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "t")
	defer f.Close()
	if err := f.Truncate(3 * MinArea); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(buildC(t), "open")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.Output()
	if got, want := strings.TrimSpace(string(out)), fmt.Sprint(-int(unix.EINVAL)); err != nil || got != want {
		t.Errorf("ring_open = %s, %v; want %s", got, err, want)
	}
}
