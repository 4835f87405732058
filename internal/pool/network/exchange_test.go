package network

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
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
			var request [messageSize]byte
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

// slowConn takes a while for each read.
type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return c.Conn.Read(b)
}

// A budget for bursts that are hardly longer than their first piece measures no bandwidth: that of
// 16 KiB each ms counted as 100 KB/s.
func TestSmallBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := net.Pipe()
		var serving sync.WaitGroup
		defer serving.Wait()
		serving.Go(func() { _ = Serve(context.Background(), slowConn{peer}) })
		for _, burst := range []int{piece + 100, 4 * piece} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			s, err := Measure(ctx, slowConn{conn}, 2*burst+pings*pingCost)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if least := float64(piece) * 500; s.Forward > 0 && s.Forward < least || s.Backward > 0 && s.Backward < least || burst > minBurst && s.Forward+s.Backward == 0 {
				t.Errorf("bursts of %d bytes: %g and %g bytes/s", burst, s.Forward, s.Backward)
			}
		}
		_, _ = conn.Close(), peer.Close()
	})
}

// A peer that answers before it is asked is not near, and one that says that a burst has arrived at
// once has no fast network: both would attract work.
func TestLyingPeers(t *testing.T) {
	const travel = 5 * time.Millisecond // each way
	const burst = 4 * piece
	for name, c := range map[string]struct {
		budget int
		serve  func(conn net.Conn)
		want   outboard.Kind
	}{
		"answers in advance": {pings * pingCost, func(conn net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, _ = conn.Write(make([]byte, 64*messageSize))
		}, outboard.Protocol},
		"claims a fast burst": {2*burst + pings*pingCost, func(conn net.Conn) {
			var request [messageSize]byte
			for {
				if _, err := io.ReadFull(conn, request[:]); err != nil {
					return
				}
				time.Sleep(2 * travel)
				forward, backward := binary.LittleEndian.Uint32(request[:]), binary.LittleEndian.Uint32(request[4:])
				for range forward / piece {
					time.Sleep(travel)
					_, _ = io.ReadFull(conn, make([]byte, piece))
				}
				binary.LittleEndian.PutUint64(request[:], uint64(6*time.Microsecond))
				for range backward / piece {
					time.Sleep(travel) // the bytes arrive together afterwards
				}
				_, _ = conn.Write(append(request[:], make([]byte, backward)...))
			}
		}, outboard.Other},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, peer := net.Pipe()
				var serving sync.WaitGroup
				defer serving.Wait()
				serving.Go(func() { c.serve(peer) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, err := Measure(ctx, conn, c.budget)
				if outboard.KindOf(err) != c.want {
					t.Errorf("error %v", err)
				}
				const most = float64(piece) / float64(travel) * float64(time.Second)
				if err == nil && (s.RTTs[0] < 2*travel || s.Forward > most || s.Backward > most || s.Forward < most/2 || s.Backward < most/2) {
					t.Errorf("sample %+v, want at most %g bytes/s", s, most)
				}
				_, _ = conn.Close(), peer.Close()
			})
		})
	}
}
