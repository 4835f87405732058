package framed

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
)

func TestEchoOverSlowLink(t *testing.T) {
	a, b := tcp(t)
	oc, os := certificates(t)
	link := netem.Link{RTT: 4 * time.Millisecond, BitsPerSecond: 1e9, Jitter: time.Millisecond}
	client, server := closeAtEnd(t, Client(netem.Emulate(a, link), Options{TLS: oc}), Server(b, Options{TLS: os}))
	go serveEcho(t.Context(), server)
	s := open(t, client, "echo")
	want := randomBytes(2 << 20)
	go s.Write(want)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("echo: %v", err)
	}
	if client.RTT() < link.RTT {
		t.Errorf("RTT = %v, want at least %v", client.RTT(), link.RTT)
	}
}
