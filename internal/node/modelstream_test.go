package node

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/outboard-run/outboard"
)

// message returns a gRPC message of that many bytes.
func message(size int) []byte {
	return append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
}

// A client that sends messages on a stream of HTTP/2 faster than its call receives them does not have
// them held in the node's memory: gRPC's server reads each body as fast as it arrives.
func TestMessagesOfStreamsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &modelBodies{}
		sizes := []int{3 * freeBody, 0, 5, 2 * freeBody}
		var sent bytes.Buffer
		for _, size := range sizes {
			sent.Write(message(size))
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, streamPath, &sent)
		stream, body := b.limitMessages(r, "a")
		arrived, ended := 0, make(chan error, 1)
		go func() {
			p := make([]byte, 16<<10)
			for {
				n, err := stream.Body.Read(p)
				if arrived += n; err != nil {
					ended <- err
					return
				}
			}
		}()
		synctest.Wait()
		want := 0
		for i, size := range sizes {
			body.want()
			synctest.Wait()
			if want += messageHead + size; arrived != want {
				t.Fatalf("%d bytes arrived with message %d, want %d", arrived, i, want)
			}
			if held := int64(max(size-freeBody, 0)); b.held != held {
				t.Errorf("%d bytes are counted with message %d, want %d", b.held, i, held)
			}
		}
		if err := stream.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the body ends with %v", err)
		}
		if b.held != 0 || len(b.clients) != 0 {
			t.Errorf("%d bytes are held, of %d clients", b.held, len(b.clients))
		}
	})
}

// The requests for models that a node serves at a time are bounded, and one client does not get
// those of all.
func TestRequestsForModelsAreBounded(t *testing.T) {
	q := &modelRequests{}
	var leave []func()
	for range maxClientRequests {
		release, err := q.enter("a")
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, release)
	}
	if _, err := q.enter("a"); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("one more of the same client: %v", err)
	}
	other, err := q.enter("b")
	if err != nil {
		t.Fatalf("one of another client: %v", err)
	}
	for _, release := range append(leave, other) {
		release()
	}
	if len(q.clients) != 0 {
		t.Errorf("requests of %d clients are counted", len(q.clients))
	}
	serve := func() (status int, aborted any) {
		defer func() { aborted = recover() }()
		w := httptest.NewRecorder()
		q.serveBounded(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/models/m", http.NoBody), http.NotFoundHandler())
		return w.Code, nil
	}
	for _, c := range []struct {
		served  int64
		status  int
		aborted any
	}{{maxModelRequests - 1, http.StatusNotFound, nil}, {maxModelRequests, http.StatusTooManyRequests, nil}, {2 * maxModelRequests, 0, http.ErrAbortHandler}} {
		q.all.Store(c.served)
		if status, aborted := serve(); status != c.status || aborted != c.aborted {
			t.Errorf("beside %d: %d, %v", c.served, status, aborted)
		}
	}
}
