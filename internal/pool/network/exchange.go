package network

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// Protocol is the TLS application protocol of probes. After the handshake the prober sends
// requests of 16 bytes, u32 size of the burst that follows, u32 size of the burst wanted back, and
// a nonce of 8 bytes, and then the burst. The answer is 16 bytes, u64 how long the burst took to
// arrive after its first piece, in ns, and the nonce, and the burst wanted back. Integers are
// little-endian. The nonce prevents a peer from answering before it has received the request: the
// nearest nodes get the most work.
const Protocol = protocolName + "2"

// protocolName begins the application protocol of probes in every version.
const protocolName = "outboard-probe/"

// IsOtherVersion reports whether a TLS application protocol is that of probes in another version.
func IsOtherVersion(protocol string) bool {
	return protocol != Protocol && strings.HasPrefix(protocol, protocolName)
}

const (
	// maxBurst bounds a burst; minBurst is the smallest that is worth a measurement: the few bytes
	// after the first piece of a smaller one arrive with it, or with the delay of a wake-up.
	maxBurst = 1 << 20
	minBurst = 2 * piece
	// pings is the number of small messages of a probe.
	pings = 5
	// messageSize is the size of a request, and of an answer.
	messageSize = 16
	// pingCost is the approximate cost of a small message in both directions, with TLS and TCP.
	pingCost = 2 * (messageSize + 22 + 52)
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
		var request [messageSize]byte
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
		answer := request // with its nonce
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
		elapsed, _, err := exchange(conn, buf, 0, 0, &s)
		if err != nil {
			return s, err
		}
		s.RTTs = append(s.RTTs, elapsed)
	}
	burst := min((budget-s.Bytes)/2, maxBurst)
	if burst < minBurst {
		return s, nil
	}
	// A burst takes no less than the exchange does beyond a round trip, whatever the peer says.
	longest := slices.Max(s.RTTs)
	elapsed, took, err := exchange(conn, buf, burst, 0, &s)
	if err != nil {
		return s, err
	}
	s.Forward = rate(burst, max(took, elapsed-longest))
	elapsed, took, err = exchange(conn, buf, 0, burst, &s)
	s.Backward = rate(burst, max(took, elapsed-longest))
	return s, err
}

// exchange sends one request, and returns how long the exchange took, and how long the burst took
// in its direction.
func exchange(conn net.Conn, buf []byte, forward, backward int, s *Sample) (elapsed, took time.Duration, err error) {
	var request, answer [messageSize]byte
	binary.LittleEndian.PutUint32(request[:], uint32(forward))
	binary.LittleEndian.PutUint32(request[4:], uint32(backward))
	nonce := request[8:]
	_, _ = rand.Read(nonce) // never fails
	s.Bytes += pingCost + forward + backward
	begin := time.Now()
	if _, err := conn.Write(request[:]); err != nil {
		return 0, 0, err
	}
	if err := sendBurst(conn, buf, forward); err != nil {
		return 0, 0, err
	}
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return 0, 0, err
	}
	if !bytes.Equal(answer[8:], nonce) {
		return 0, 0, outboard.Errorf(outboard.Protocol, "probe", "the answer is not that of the request")
	}
	took = time.Duration(min(binary.LittleEndian.Uint64(answer[:]), uint64(time.Minute)))
	if backward > 0 {
		took, err = receiveBurst(conn, buf, backward)
	}
	return time.Since(begin), took, err
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
