package host

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"
)

// TestLines reads lines that come in pieces, and refuses one that does not end.
func TestLines(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		for _, piece := range []string{"on", "e\ntwo\nth", "ree\n"} {
			_, _ = far.Write([]byte(piece))
		}
		_, _ = far.Write(bytes.Repeat([]byte("x"), 2*largestLine)) // the reader gives up before
	}()
	r := &lineReader{conn: near}
	for _, want := range []string{"one", "two", "three"} {
		if got, err := r.read(time.Minute); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := r.read(time.Minute); !errors.Is(err, errTooLong) {
		t.Errorf("got %v", err)
	}
}
