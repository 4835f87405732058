package framed

import (
	"io"
	"testing"
	"time"
)

// A connection measures its round trip while nothing else is under way, with several
// pings one after the other: how much streams may send ahead depends on it.
func TestRoundTripIsMeasuredAtTheBeginning(t *testing.T) {
	a, b := tcp(t)
	defer b.Close()
	c := Client(a, Options{DeadAfter: time.Hour})
	defer func() { c.fail(ErrClosed); c.loops.Wait() }()
	if _, err := b.Write([]byte(preface)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, len(preface))); err != nil {
		t.Fatal(err)
	}
	ping := make([]byte, headerSize+8)
	for n := range initialPings {
		if _, err := io.ReadFull(b, ping); err != nil {
			t.Fatal(err)
		}
		if ping[3] != byte(framePing) {
			t.Fatalf("frame %d is %x", n, ping)
		}
		ping[3] = byte(framePong)
		if _, err := b.Write(ping); err != nil {
			t.Fatal(err)
		}
	}
}
