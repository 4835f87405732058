package network

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/outboard-run/outboard"
)

// Protocol is the TLS application protocol of probes. After the handshake the prober sends
// requests of 8 bytes, u32 size of the burst that follows and u32 size of the burst wanted back,
// both little-endian, and then the burst. The answer is 8 bytes, how long the burst took to
// arrive after its first piece, in ns, and the burst wanted back.
const Protocol = "outboard-probe/1"

const (
	// maxBurst bounds a burst; minBurst is the smallest that is worth a measurement.
	maxBurst = 1 << 20
	minBurst = 16 << 10
	// pings is the number of small messages of a probe.
	pings = 5
	// pingCost is the approximate cost of a small message in both directions, with TLS and TCP.
	pingCost = 2 * (8 + 22 + 52)
	// serveLimit is how many bytes of bursts a served connection may ask for per minute.
	serveLimit = 64 << 20
	// idleLimit is how long a served connection may be silent.
	idleLimit = 10 * time.Minute
	piece     = 16 << 10
)

// Serve answers the probes of one peer until the connection ends.
func Serve(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	buf := make([]byte, piece)
	minute, left := time.Now(), serveLimit
	for {
		_ = conn.SetDeadline(time.Now().Add(idleLimit))
		var request [8]byte
		if _, err := io.ReadFull(conn, request[:]); err != nil {
			return nil // the peer has ended, or probes other nodes now
		}
		forward, backward := binary.LittleEndian.Uint32(request[:]), binary.LittleEndian.Uint32(request[4:])
		if time.Since(minute) > time.Minute {
			minute, left = time.Now(), serveLimit
		}
		left -= int(min(forward, maxBurst)) + int(min(backward, maxBurst))
		if forward > maxBurst || backward > maxBurst || left < 0 {
			return outboard.Errorf(outboard.Protocol, "probe", "bursts of %d and %d bytes: too many for a minute", forward, backward)
		}
		_ = conn.SetDeadline(time.Now().Add(probeLimit))
		took, err := receiveBurst(conn, buf, int(forward))
		if err != nil {
			return nil
		}
		var answer [8]byte
		binary.LittleEndian.PutUint64(answer[:], uint64(took))
		if _, err := conn.Write(answer[:]); err != nil {
			return nil
		}
		if err := sendBurst(conn, buf, int(backward)); err != nil {
			return nil
		}
	}
}

// receiveBurst reads n bytes and returns how long they took after the first piece.
func receiveBurst(conn net.Conn, buf []byte, n int) (time.Duration, error) {
	var begin time.Time
	for n > 0 {
		got, err := conn.Read(buf[:min(n, len(buf))])
		if err != nil {
			return 0, err
		}
		if begin.IsZero() {
			begin = time.Now()
		}
		n -= got
	}
	if begin.IsZero() {
		return 0, nil
	}
	return time.Since(begin), nil
}

func sendBurst(conn net.Conn, buf []byte, n int) error {
	for n > 0 {
		sent, err := conn.Write(buf[:min(n, len(buf))])
		if err != nil {
			return err
		}
		n -= sent
	}
	return nil
}

// Measure probes a peer that serves conn, for at most budget bytes: some round trips, and a burst
// in each direction if the budget has room for them.
func Measure(ctx context.Context, conn net.Conn, budget int) (Sample, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return Sample{}, errors.New("a probe needs a deadline")
	}
	_ = conn.SetDeadline(deadline)
	var s Sample
	buf := make([]byte, piece)
	for range max(1, min(pings, budget/pingCost)) {
		begin := time.Now()
		if _, err := exchange(conn, buf, 0, 0, &s); err != nil {
			return s, err
		}
		s.RTTs = append(s.RTTs, time.Since(begin))
	}
	burst := min((budget-s.Bytes)/2, maxBurst)
	if burst < minBurst {
		return s, nil
	}
	took, err := exchange(conn, buf, burst, 0, &s)
	if err != nil {
		return s, err
	}
	s.Forward = rate(burst, took)
	took, err = exchange(conn, buf, 0, burst, &s)
	s.Backward = rate(burst, took)
	return s, err
}

// exchange sends one request, and returns how long the burst took in its direction.
func exchange(conn net.Conn, buf []byte, forward, backward int, s *Sample) (time.Duration, error) {
	var request, answer [8]byte
	binary.LittleEndian.PutUint32(request[:], uint32(forward))
	binary.LittleEndian.PutUint32(request[4:], uint32(backward))
	s.Bytes += pingCost + forward + backward
	if _, err := conn.Write(request[:]); err != nil {
		return 0, err
	}
	if err := sendBurst(conn, buf, forward); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return 0, err
	}
	if backward > 0 {
		return receiveBurst(conn, buf, backward)
	}
	return time.Duration(min(binary.LittleEndian.Uint64(answer[:]), uint64(time.Minute))), nil
}

// rate returns the bandwidth that a burst has measured: its first piece only starts the clock. It
// returns 0 for a burst that was too short, or arrived too fast, to measure.
func rate(burst int, took time.Duration) float64 {
	const shortest = 5 * time.Microsecond
	if took < shortest || burst <= piece {
		return 0
	}
	return float64(burst-piece) / took.Seconds()
}
