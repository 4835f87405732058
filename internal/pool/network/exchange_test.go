package network

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// pair is a TCP connection whose one end serves probes; its error comes over the channel.
func pair(t *testing.T) (net.Conn, <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = Serve(context.Background(), conn)
			_ = conn.Close()
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, served
}

func TestMeasure(t *testing.T) {
	conn, _ := pair(t)
	for _, budget := range []int{1000, 100_000, 1 << 20} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, err := Measure(ctx, conn, budget)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(s.RTTs) == 0 || s.RTTs[0] <= 0 || s.Bytes > budget+2*pingCost {
			t.Errorf("budget %d: %+v", budget, s)
		}
		if small := budget < 2*minBurst; small && s.Forward+s.Backward != 0 {
			t.Errorf("budget %d: bursts were sent: %+v", budget, s)
		}
	}
}

// A peer that asks for more than a burst, or for too many, is cut off.
func TestServeRefuses(t *testing.T) {
	for name, requests := range map[string][]uint32{"too large": {maxBurst + 1}, "too many": make([]uint32, 0, serveLimit/maxBurst+1)} {
		conn, served := pair(t)
		for len(requests) < cap(requests) {
			requests = append(requests, maxBurst)
		}
		go func() {
			buf := make([]byte, 64<<10)
			for { // takes what comes back
				if _, err := conn.Read(buf); err != nil {
					return
				}
			}
		}()
		for _, size := range requests {
			var request [8]byte
			binary.LittleEndian.PutUint32(request[4:], size)
			if _, err := conn.Write(request[:]); err != nil {
				break
			}
		}
		if err := <-served; outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: error %v, want one of kind Protocol", name, err)
		}
	}
}
