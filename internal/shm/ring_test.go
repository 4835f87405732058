package shm

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// pair gives both ends of a new ring in one process.
func pair(t testing.TB, area int) (client, worker *Ring) {
	t.Helper()
	client, err := Create(area)
	if err != nil {
		t.Fatal(err)
	}
	worker, err = Open(dup(t, client.File()), Worker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Unmap(); worker.Unmap() })
	return client, worker
}

func dup(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func put(t testing.TB, r *Ring, p []byte) {
	t.Helper()
	for len(p) > 0 {
		b, err := r.Reserve(1)
		if err != nil {
			t.Error(err)
			return
		}
		n := copy(b, p)
		r.Commit(n)
		p = p[n:]
	}
}

func TestStreamKeepsBytesInOrder(t *testing.T) {
	client, worker := pair(t, MinArea)
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	var wg sync.WaitGroup
	for _, ends := range [][2]*Ring{{client, worker}, {worker, client}} {
		wg.Go(func() {
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+rand.IntN(MinArea)) // asking for all of it could wait for the consumer, who waits for us
				b, err := ends[0].Reserve(1)
				if err != nil {
					t.Error(err)
					return
				}
				n = copy(b, rest[:n])
				ends[0].Commit(n)
				rest = rest[n:]
			}
		})
		wg.Go(func() {
			var got []byte
			for len(got) < len(want) {
				b, err := ends[1].Next(min(1+rand.IntN(MinArea), len(want)-len(got)))
				if err != nil {
					t.Error(err)
					return
				}
				n := 1 + rand.IntN(len(b))
				got = append(got, b[:n]...)
				ends[1].Release(n)
			}
			if !bytes.Equal(got, want) {
				t.Error("bytes differ")
			}
		})
	}
	wg.Wait()
}

func TestCleanCloseGivesTheRestThenEOF(t *testing.T) {
	client, worker := pair(t, MinArea)
	put(t, client, []byte("rest"))
	client.Close(Done)
	if b, err := worker.Next(1); err != nil || string(b) != "rest" {
		t.Fatalf("Next = %q, %v", b, err)
	}
	if _, err := worker.Next(5); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Next past the end = %v, want io.ErrUnexpectedEOF", err)
	}
	worker.Release(4)
	if _, err := worker.Next(1); !errors.Is(err, io.EOF) {
		t.Errorf("Next after the end = %v, want io.EOF", err)
	}
	if _, err := worker.Reserve(1); !errors.Is(err, io.EOF) {
		t.Errorf("Reserve after the end = %v, want io.EOF", err)
	}
}

func TestAwaitNext(t *testing.T) {
	client, worker := pair(t, MinArea)
	if client.AwaitNext(1, time.Microsecond) {
		t.Error("an empty ring has a byte")
	}
	put(t, worker, []byte{1, 2, 3})
	if !client.AwaitNext(3, time.Hour) || client.AwaitNext(4, time.Microsecond) {
		t.Error("a ring with 3 bytes has not 3, or has 4")
	}
	ended := make(chan bool)
	go func() { ended <- client.AwaitNext(4, time.Hour) }()
	_ = worker.Close(Done)
	if !<-ended {
		t.Error("the end of the ring is not noticed")
	}
	if _, err := client.Next(4); err == nil {
		t.Error("a closed ring with 3 bytes has 4")
	}
}

func TestFirstReasonWins(t *testing.T) {
	client, worker := pair(t, MinArea)
	worker.Fail(outboard.Errorf(outboard.LeaseLost, "lease", "expired"))
	client.Close(Done)
	for name, r := range map[string]*Ring{"client": client, "worker": worker} {
		if _, err := r.Next(1); outboard.KindOf(err) != outboard.LeaseLost {
			t.Errorf("%s: Next = %v, want lease_lost", name, err)
		}
		if _, err := r.Reserve(1); outboard.KindOf(err) != outboard.LeaseLost {
			t.Errorf("%s: Reserve = %v, want lease_lost", name, err)
		}
	}
}

// patient makes the ends sleep until they are woken.
func patient(ends ...*Ring) {
	for _, r := range ends {
		r.dataLimit, r.spaceLimit = time.Hour, time.Hour
	}
}

// untilSet waits for a sleeper to announce itself.
func untilSet(flags ...*atomic.Uint32) {
	for _, f := range flags {
		for f.Load() == 0 {
			runtime.Gosched()
		}
	}
}

// TestCloseWakesAllSleepers puts a sleeper into each wait of both ends.
func TestCloseWakesAllSleepers(t *testing.T) {
	for name, closer := range map[string]int{"client": 0, "worker": 1} {
		t.Run(name, func(t *testing.T) {
			readers, writers := [2]*Ring{}, [2]*Ring{}
			readers[0], readers[1] = pair(t, MinArea)
			writers[0], writers[1] = pair(t, MinArea)
			var wg sync.WaitGroup
			for _, r := range readers {
				patient(r)
				wg.Go(func() {
					if _, err := r.Next(1); outboard.KindOf(err) != outboard.SessionLost {
						t.Errorf("Next = %v", err)
					}
				})
			}
			for _, r := range writers {
				patient(r)
				put(t, r, make([]byte, MinArea))
				wg.Go(func() {
					if _, err := r.Reserve(1); outboard.KindOf(err) != outboard.SessionLost {
						t.Errorf("Reserve = %v", err)
					}
				})
			}
			for i := range 2 {
				untilSet(readers[i].in.dataSleeper, writers[i].out.spaceSleeper)
			}
			readers[closer].Close(1 + Reason(outboard.SessionLost))
			writers[closer].Close(1 + Reason(outboard.SessionLost))
			wg.Wait()
		})
	}
}

// TestSleepingConsumerLeavesNoRoomUntold releases less than what is announced at
// once, and then waits for what the producer can only send into that room.
func TestSleepingConsumerLeavesNoRoomUntold(t *testing.T) {
	client, worker := pair(t, MinArea)
	patient(client, worker)
	put(t, client, make([]byte, MinArea))
	var wg sync.WaitGroup
	wg.Go(func() {
		if b, err := client.Reserve(100); err == nil {
			client.Commit(len(b))
		} else {
			t.Error(err)
		}
	})
	untilSet(client.out.spaceSleeper)
	if _, err := worker.Next(1); err != nil {
		t.Error(err)
	}
	worker.Release(100)
	if _, err := worker.Next(MinArea); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestOpenRefuses(t *testing.T) {
	const requiredSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	memfd := func(size int64, seals int, header []byte) *os.File {
		fd, err := unix.MemfdCreate("t", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "t")
		t.Cleanup(func() { f.Close() })
		if err := errors.Join(f.Truncate(size), writeAt(f, header)); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return f
	}
	header := func(magic, version uint32, area uint64) []byte {
		return []byte{
			byte(magic), byte(magic >> 8), byte(magic >> 16), byte(magic >> 24),
			byte(version), 0, 0, 0,
			byte(area), byte(area >> 8), byte(area >> 16), byte(area >> 24), byte(area >> 32), 0, 0, byte(area >> 56),
		}
	}
	good := header(magic, version, 4096)
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, f := range map[string]*os.File{
		"plain file":    plain,
		"unsealed":      memfd(3*4096, 0, good),
		"can grow":      memfd(3*4096, unix.F_SEAL_SHRINK, good),
		"can shrink":    memfd(3*4096, unix.F_SEAL_GROW, good),
		"empty":         memfd(0, requiredSeals, nil),
		"magic":         memfd(3*4096, requiredSeals, header(magic+1, version, 4096)),
		"version":       memfd(3*4096, requiredSeals, header(magic, 2, 4096)),
		"not a power":   memfd(4096+2*12288, requiredSeals, header(magic, version, 12288)),
		"zero area":     memfd(4096, requiredSeals, header(magic, version, 0)),
		"too small":     memfd(4096+2*2048, requiredSeals, header(magic, version, 2048)),
		"absurd area":   memfd(4096, requiredSeals, header(magic, version, 1<<63)),
		"shorter file":  memfd(2*4096, requiredSeals, good),
		"longer file":   memfd(4*4096, requiredSeals, good),
		"over the most": memfd(4096, requiredSeals, header(magic, version, 2*MaxArea)),
	} {
		if r, err := Open(f, Worker); err == nil || outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: Open = %v, %v; want invalid", name, r, err)
		}
	}
	if _, err := Open(memfd(3*4096, requiredSeals, good), Worker); err != nil {
		t.Errorf("a good ring is refused: %v", err)
	}
}

func writeAt(f *os.File, p []byte) error {
	_, err := f.WriteAt(p, 0)
	return err
}

func TestCreatedMemoryCannotBeResized(t *testing.T) {
	client, _ := pair(t, MinArea)
	for _, size := range []int64{0, 1 << 20} {
		if err := client.File().Truncate(size); err == nil {
			t.Errorf("truncate to %d succeeded", size)
		}
	}
	if _, err := unix.FcntlInt(client.File().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("another seal could be added")
	}
}

func TestAreaLimits(t *testing.T) {
	for _, area := range []int{-1, 0, 100, MinArea + 1, 3 * MinArea, 2 * MaxArea} {
		if _, err := Create(area); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("Create(%d) = %v, want invalid", area, err)
		}
	}
	client, _ := pair(t, MinArea)
	if _, err := client.Next(MinArea + 1); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("Next of more than the area = %v", err)
	}
	if _, err := client.Reserve(MinArea + 1); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("Reserve of more than the area = %v", err)
	}
}

func TestReasonOfWrappedEOFIsNotClean(t *testing.T) {
	wrapped := outboard.Errorf(outboard.SessionLost, "session", "the node ended: %w", io.EOF)
	if got := ReasonOf(wrapped).Kind(); got != outboard.SessionLost {
		t.Errorf("got %v, want %v", got, outboard.SessionLost)
	}
}
