// Package freeport chooses TCP ports for programs that can be told a port, but not be given a socket, and
// reserves ports for servers of tests that restart.
package freeport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"

	"github.com/outboard-run/outboard"
)

// Choose returns a port on which no process listens, at any address. It lies outside of the range from
// which the kernel gives ports to sockets that name none, as those of connections: only a process that
// names this very port can have it before the caller's program does.
func Choose(ctx context.Context) (int, error) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // without it the common one
	low, count := candidates(string(text))
	var last error
	for range attempts {
		port := low + rand.IntN(count)
		if last = Probe(ctx, port); last == nil {
			return port, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return 0, fmt.Errorf("find a free TCP port: %w", last)
}

// Probe returns an error if a process listens on a port, at any address of this machine.
func Probe(ctx context.Context, port int) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return outboard.Errorf(outboard.Conflict, "", "%w", err)
	}
	return l.Close()
}

const (
	attempts = 100
	// first is the lowest port that is chosen: well-known services are below it.
	first = 10_000
	last  = 65_535
	// enough ports make two choices of the same one rare.
	enough = 2_000
)

// candidates returns the ports to choose from, given the kernel's own range as it is written in
// ip_local_port_range: below it, else above it, else all.
func candidates(text string) (low, count int) {
	var from, to int
	if n, _ := fmt.Sscan(text, &from, &to); n != 2 {
		from, to = 32_768, 60_999
	}
	switch {
	case from-first >= enough:
		return first, from - first
	case last-to >= enough && to >= first:
		return to + 1, last - to
	}
	return first, last - first + 1
}
