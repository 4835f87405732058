package shm

import (
	"bytes"
	"io"
	"testing"

	"github.com/outboard-run/outboard"
)

// A consumer may keep what it has read until its receipt is acknowledged: the peer gets the space
// only then, and further bytes are read meanwhile.
func TestRetainedBytes(t *testing.T) {
	client, worker := pair(t, MinArea)
	if b := worker.TryNext(); b != nil {
		t.Errorf("an empty ring has %d bytes", len(b))
	}
	put(t, client, []byte("first"))
	worker.AwaitBeyond(0)
	if b := worker.TryNext(); string(b) != "first" || worker.Received() != 5 {
		t.Errorf("it has %q, and received %d bytes", b, worker.Received())
	}
	put(t, client, bytes.Repeat([]byte{1}, MinArea-5))
	if b := client.TryReserve(); b != nil {
		t.Errorf("a full ring has %d free bytes", len(b))
	}
	worker.AwaitBeyond(5)
	if b := worker.TryNext(); len(b) != MinArea || worker.Received() != MinArea {
		t.Errorf("with what was kept it has %d bytes, and received %d", len(b), worker.Received())
	}
	worker.Release(5)
	worker.AnnounceSpace()
	client.AwaitSpace(5)
	if b := client.TryReserve(); len(b) != 5 {
		t.Errorf("after 5 bytes were released %d are free", len(b))
	}
}

// Wake and the end of the ring end an AwaitBeyond.
func TestAwaitBeyondEnds(t *testing.T) {
	client, worker := pair(t, MinArea)
	done := make(chan struct{})
	go func() {
		defer close(done)
		worker.AwaitBeyond(0)
	}()
	worker.Wake()
	<-done
	if worker.Err() != nil {
		t.Errorf("the error of an open ring is %v", worker.Err())
	}
	if err := client.Fail(outboard.Errorf(outboard.Busy, "", "no more")); err != nil {
		t.Fatal(err)
	}
	worker.AwaitBeyond(0)
	if outboard.KindOf(worker.Err()) != outboard.Busy || client.TryReserve() != nil {
		t.Errorf("the error of a closed ring is %v", worker.Err())
	}
}

func TestReasons(t *testing.T) {
	for _, err := range []error{nil, io.EOF} {
		if r := ReasonOf(err); r != Done || r.String() != "done" || r.Err() != io.EOF || r.Kind() != outboard.Other { //nolint:errorlint // it is EOF itself
			t.Errorf("%v has the reason %v", err, r)
		}
	}
	// Each kind crosses the ring, and a number that is none becomes Other.
	for kind := outboard.Other; kind <= outboard.NoPool; kind++ {
		if r := ReasonOf(outboard.Errorf(kind, "", "x")); outboard.KindOf(r.Err()) != kind || r.String() != kind.String() {
			t.Errorf("%v arrives as %v", kind, outboard.KindOf(r.Err()))
		}
	}
	if r := Reason(1 << 20); r.Kind() != outboard.Other {
		t.Errorf("reason %d has the kind %v", r, r.Kind())
	}
}

// The waits of AwaitBeyond are measured, so that it spins where they are short.
func TestAwaitBeyondIsMeasured(t *testing.T) {
	client, worker := pair(t, MinArea)
	put(t, client, []byte("first"))
	worker.AwaitBeyond(0)
	if p := &worker.in.patience; p.average == 0 {
		t.Errorf("a wait left no trace: %+v", p)
	}
}
