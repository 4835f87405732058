package netem

import (
	"bytes"
	"io"
	"net"
	"runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

func TestParseLink(t *testing.T) {
	for text, want := range map[string]Link{
		"":                             {},
		"rtt=10ms":                     {RTT: 10 * time.Millisecond},
		"rtt=10ms,bw=1Gbps":            {RTT: 10 * time.Millisecond, BitsPerSecond: 1e9},
		"bw=2.5Mbps,jitter=1ms,rtt=0s": {BitsPerSecond: 2.5e6, Jitter: time.Millisecond},
	} {
		got, err := ParseLink(text)
		if err != nil || got != want {
			t.Errorf("ParseLink(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseLink(got.String()); err != nil || again != want {
			t.Errorf("ParseLink(%q) = %+v, %v; want %+v", got.String(), again, err, want)
		}
	}
	for _, text := range []string{"rtt", "rtt=x", "rtt=-1s", "bw=1", "bw=-1Gbps", "bw=NaNbps", "bw=0bps", "loss=1", "jitter=-1ms"} {
		if l, err := ParseLink(text); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("ParseLink(%q) = %v, %v; want invalid", text, l, err)
		}
	}
}

// TestEmulateDelaysButPipelines checks what the machine's load cannot change: a
// delivery is never early, and a hundred in flight do not wait for each other.
func TestEmulateDelaysButPipelines(t *testing.T) {
	a, b := net.Pipe()
	const rtt = 20 * time.Millisecond
	e := Emulate(a, Link{RTT: rtt})
	want := make([]byte, 100*1000)
	for i := range want {
		want[i] = byte(i * i >> 8)
	}
	start := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 100 {
			if _, err := e.Write(want[i*1000 : (i+1)*1000]); err != nil {
				t.Error(err)
			}
		}
	})
	got := make([]byte, len(want))
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other end read: %v", err)
	}
	wg.Go(func() { b.Write(want) })
	if _, err := io.ReadFull(e, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("this end read: %v", err)
	}
	took := time.Since(start)
	if took < rtt {
		t.Errorf("there and back in %v: less than %v", took, rtt)
	}
	if took > 50*rtt {
		t.Errorf("there and back in %v: one delay for each write", took)
	}
	wg.Wait()
	e.Close()
	b.Close()
}

func TestEmulateLimitsBandwidth(t *testing.T) {
	a, b := net.Pipe()
	e := Emulate(a, Link{BitsPerSecond: 80e6}) // 10 MB/s
	start := time.Now()
	go e.Write(make([]byte, 300_000))
	if _, err := io.ReadFull(b, make([]byte, 300_000)); err != nil {
		t.Error(err)
	}
	if took, least := time.Since(start), 30*time.Millisecond; took < least {
		t.Errorf("took %v, want at least %v", took, least)
	}
	e.Close()
	b.Close()
}

// TestSleepersHoldNoProcessor: a goroutine that waits for the time of a delivery is not in a system
// call, in which it would keep one of the runtime's processors.
func TestSleepersHoldNoProcessor(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	e := Emulate(a, Link{RTT: time.Hour})
	if _, err := e.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	out := &e.(*emulated).out
	sleeping := func() bool {
		out.mu.Lock()
		defer out.mu.Unlock()
		return len(out.queue) == 0
	}
	for !sleeping() {
		time.Sleep(time.Millisecond)
	}
	samples := []metrics.Sample{{Name: "/sched/goroutines/not-in-go:goroutines"}}
	const enough, most = 20, 10_000
	for tries, free := 0, 0; free < enough; tries++ {
		if tries == most {
			t.Fatalf("a goroutine was in a system call at least every %d ms", enough)
		}
		time.Sleep(time.Millisecond) // between samples
		free++
		if metrics.Read(samples); samples[0].Value.Uint64() > 0 {
			free = 0
		}
	}
	// Close wakes the sleeper and waits for it.
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSharedPath: the connections over one path have its bandwidth together, each direction for
// itself, and an idle path carries the next bytes at once.
func TestSharedPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPath(Link{RTT: 10 * time.Millisecond, BitsPerSecond: 8e6}) // 1 kB/ms
		a, b := newEmulated(nil, p), newEmulated(nil, p)
		for _, d := range []*direction{&a.out, &a.in, &b.out, &b.in} {
			defer d.timer.stop()
		}
		after := func(d *direction, n int) time.Duration { return time.Until(d.schedule(n)) }
		got := []time.Duration{after(&a.out, 3000), after(&b.out, 2000), after(&b.in, 1000), after(&a.in, 1000), after(&a.out, 1000)}
		time.Sleep(time.Second)
		got = append(got, after(&b.out, 1000))
		for i, want := range []time.Duration{8, 10, 6, 7, 11, 6} {
			if got[i] != want*time.Millisecond {
				t.Errorf("delivery %d after %v, want %v", i, got[i], want*time.Millisecond)
			}
		}
	})
}
