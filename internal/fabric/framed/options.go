package framed

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Options configure a connection. The zero value selects the defaults.
type Options struct {
	// Logger receives one record when a peer breaks the protocol. Default: none.
	Logger *slog.Logger
	// Observer observes the connection's events. Default: none.
	Observer Observer
	// TLS, if set, secures the connection: Client and Server do the handshake. Nil: nc is used as
	// it is; if it is a *tls.Conn, its records are not merged into larger system calls.
	TLS *tls.Config
	// Dialed, if set, is called with the socket that Dial has opened, before the handshake. An
	// error ends the dial.
	Dialed func(net.Conn) error
	// DeadAfter is the time after which a silent peer is considered dead. Default 4 s.
	DeadAfter time.Duration
	// Window is the largest flow-control window of a stream, from 256 KiB (the initial window)
	// to 1 GiB. Default 8 MiB.
	Window int
	// BothWays gives a stream that uses up its first window the largest window at once, however
	// short the round trip is: for bulk data in both directions at the same time, where credit
	// waits behind data in the operating system's queues of the other direction. Default: windows
	// grow while they last for no more than a few round trips.
	BothWays bool
	// Budget bounds the windows of all streams of the connection together, beyond their initial
	// 256 KiB. Default 64 MiB.
	Budget int
	// MaxStreams bounds the open streams in each direction: Open waits, and further streams of the
	// peer are reset with outboard.Exhausted. Default 16384.
	MaxStreams int

	// burstGap is the time after a small piece of a stream within which the next piece counts as
	// part of a burst: more pieces are likely to come, and the flush loop writes them together. It
	// is shorter than the round trip of a peer that answers each piece. Overridden in tests.
	burstGap time.Duration
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.DeadAfter <= 0 {
		o.DeadAfter = 4 * time.Second
	}
	if o.Window <= 0 {
		o.Window = 8 << 20
	}
	o.Window = min(max(o.Window, firstWindow), 1<<30)
	if o.Budget <= 0 {
		o.Budget = 64 << 20
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = 16384
	}
	if o.burstGap == 0 {
		o.burstGap = 50 * time.Microsecond
	}
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
		o.TLS.DynamicRecordSizingDisabled = true
		o.TLS.MinVersion = max(o.TLS.MinVersion, tls.VersionTLS13)
	}
}
