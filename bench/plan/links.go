package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// link is an emulated link, as configured and as measured: the emulation wakes up late.
type link struct {
	nominal  netem.Link
	measured overhead.Link
}

func (l *link) String() string { return l.nominal.String() }

// measureLinks measures the round trip of each link with an echo through the same emulation, and
// without the fabric: the link's nominal round trip, plus the delay of the emulation's deliveries.
// The whole round trip of the echo would include the wake-ups of its two ends after a pause as long
// as the link, which calibration measures.
func (b *bench) measureLinks(ctx context.Context) error {
	// Calibration went through the emulation without a delay: its costs are in the constants.
	base, _, err := echo(ctx, &netem.Link{})
	if err != nil {
		return err
	}
	for i := range b.links {
		l := &b.links[i]
		late, spread, err := echo(ctx, &l.nominal)
		if err != nil {
			return err
		}
		rtt := b.rtt + l.nominal.RTT + max(0, late-base)
		l.measured = overhead.Link{
			RTT: rtt, Up: l.nominal.BitsPerSecond, Down: l.nominal.BitsPerSecond, RTTSpread: spread, BandwidthSpread: 0.01,
		}
		fmt.Fprintf(os.Stderr, "  %-28s round trip %v, spread %.0f %%\n", l, rtt.Round(time.Microsecond), 100*spread)
	}
	return nil
}

// echo sends small messages over a link and back. It returns how late the emulation delivered them,
// both directions together, and the relative spread of the mean round trip.
func echo(ctx context.Context, l *netem.Link) (time.Duration, float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	target, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	defer target.Close()
	go func() {
		c, err := target.Accept()
		if err == nil {
			_, _ = io.Copy(c, c) // ends with the connection
			_ = c.Close()
		}
	}()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	relay := netem.StartRelay(ctx, netem.Options{Listener: listener, Link: *l, Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", target.Addr().String())
	}})
	defer relay.Close()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", relay.Addr())
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	spread, err := roundTrips(c)
	up, down := relay.Late()
	return up + down, spread, err
}

// roundTrips returns the relative standard deviation of the mean of many round trips.
func roundTrips(c net.Conn) (float64, error) {
	const count = 100
	var times []time.Duration
	message := make([]byte, 64)
	for range count {
		began := time.Now()
		if _, err := c.Write(message); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, message); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	// The mean of many round trips is known much better than a single one.
	return float64(times[count*3/4]-times[count/4]) / 1.349 / float64(times[count/2]) / 3, nil
}
