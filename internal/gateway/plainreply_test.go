package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// countingWriter counts the writes that it takes, and fails from the one with the number fails on.
type countingWriter struct {
	bytes.Buffer
	writes, fails int
}

var errGone = errors.New("the client has gone")

func (w *countingWriter) Write(b []byte) (int, error) {
	if w.writes++; w.fails > 0 && w.writes >= w.fails {
		return 0, errGone
	}
	return w.Buffer.Write(b)
}

func newReply(to io.Writer) *reply {
	w := &reply{to: to, header: http.Header{}, stopping: [2]*atomic.Bool{new(atomic.Bool), new(atomic.Bool)}}
	w.begin(http.MethodGet, time.Unix(0, 0).UTC().Format(http.TimeFormat))
	return w
}

// A response that is longer than what is buffered is sent in pieces as it is written, once its
// length is known; more than that length is refused.
func TestLongReplies(t *testing.T) {
	to := &countingWriter{}
	w := newReply(to)
	piece := bytes.Repeat([]byte("x"), bufferedReply/2+1)
	w.Header().Set("Content-Length", strconv.Itoa(3*len(piece)))
	for range 3 {
		if n, err := w.Write(piece); n != len(piece) || err != nil {
			t.Fatalf("%d of %d bytes: %v", n, len(piece), err)
		}
	}
	head, body, _ := strings.Cut(to.String(), "\r\n\r\n")
	if !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || len(body) != 3*len(piece) || to.writes < 2 {
		t.Errorf("after %d writes the head is %q, and the body has %d bytes", to.writes, head, len(body))
	}
	if _, err := w.Write([]byte("y")); !errors.Is(err, http.ErrContentLength) {
		t.Errorf("a byte beyond the length: %v", err)
	}
}

// Once the client has gone each write says so, and nothing is sent any more.
func TestRepliesToNobody(t *testing.T) {
	for fails := 1; fails <= 2; fails++ {
		to := &countingWriter{fails: fails}
		w := newReply(to)
		piece := bytes.Repeat([]byte("x"), bufferedReply+1)
		w.Header().Set("Content-Length", strconv.Itoa(4*len(piece)))
		var err error
		for range 4 {
			_, err = w.Write(piece)
		}
		if !errors.Is(err, errGone) || to.writes != fails {
			t.Errorf("after %d writes the error is %v, want that of the client that has gone after %d", to.writes, err, fails)
		}
	}
}

// A connection that stays open keeps no large buffers between its requests.
func TestLargeBuffersAreDropped(t *testing.T) {
	w := newReply(io.Discard)
	w.body, w.out = make([]byte, 0, keptPlain+1), make([]byte, 0, 2*keptPlain+1)
	if w.dropLargeBuffers(); w.body != nil || w.out != nil {
		t.Errorf("buffers of %d and %d bytes are kept", cap(w.body), cap(w.out))
	}
}

// Trailers of a function's response that would change how the response is read are refused.
func TestTrailers(t *testing.T) {
	for line, want := range map[string]string{
		"no colon": "want a name, a colon and a value", ": x": "want a name, a colon and a value", "a b: x": "its name is no token", "A: x\x00y": "its value has control characters",
	} {
		var p response
		if err := p.addTrailer([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", line, err, want)
		}
	}
	var p response
	for range maxResponseFields {
		if err := p.addTrailer([]byte("Digest: x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.addTrailer([]byte("Digest: x")); err == nil {
		t.Errorf("more than %d trailers were taken", maxResponseFields)
	}
	p.trailers = []field{{[]byte("set-cookie"), []byte("a=b")}, {[]byte("transfer-encoding"), []byte("gzip")}, {[]byte("digest"), []byte("1")}}
	h := http.Header{}
	if p.copyTrailers(h); len(h) != 1 || h.Get(http.TrailerPrefix+"Digest") != "1" {
		t.Errorf("the trailers are %v", h)
	}
}

// Only a request that came over a unix socket may name its client; functions see the field of none.
func TestForwardedClient(t *testing.T) {
	for name, test := range map[string]struct {
		remote  string
		clients []string
		want    string
	}{
		"from a socket":       {"@", []string{"192.0.2.7:80"}, "192.0.2.7:80"},
		"two names":           {"@", []string{"192.0.2.7:80", "192.0.2.8:80"}, "@"},
		"from another client": {"192.0.2.9:80", []string{"192.0.2.7:80"}, "192.0.2.9:80"},
	} {
		r := &http.Request{RemoteAddr: test.remote, Header: http.Header{ClientHeader: test.clients}, URL: &url.URL{}}
		applyForwardedClient(r)
		if r.RemoteAddr != test.want || test.remote == "@" && r.Header.Get(ClientHeader) != "" {
			t.Errorf("%s: the client is %q, want %q; the field is %q", name, r.RemoteAddr, test.want, r.Header.Get(ClientHeader))
		}
	}
}
