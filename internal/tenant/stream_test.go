package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/quota"
)

const streaming = `app: flow
functions:
  stream:
    module: guest.wasm
    env: {MODE: stream}
    limits: {memory: 32MiB, response: 1GiB, deadline: 5m}
routes:
  - {path: /, function: stream, request: 100MiB}
  - {path: /small, function: stream, request: 64KiB}
`

// openFlow starts a tenant with the app of streams, and a server in front of it.
func openFlow(t *testing.T) (*bench, string) {
	b := openTenant(t)
	b.mustDeploy(streaming, nil)
	server := httptest.NewServer(b.tenant.Requests())
	t.Cleanup(server.Close)
	return b, server.URL + "/flow"
}

// pattern is a body of n bytes.
type pattern struct{ left int64 }

func (p *pattern) Read(b []byte) (int, error) {
	n := int(min(p.left, int64(len(b))))
	if p.left -= int64(n); n == 0 {
		return 0, io.EOF
	}
	for i := range b[:n] {
		b[i] = 'x'
	}
	return n, nil
}

// A body of 96 MiB passes through a function of 32 MiB, announced or in chunks, and the tenant's
// account is charged for none of it.
func TestBodyStreams(t *testing.T) {
	const size = 96 << 20
	b, url := openFlow(t)
	requests := b.tenant.account.Budget(quota.Requests)
	digest := sha256.New()
	_, _ = io.Copy(digest, &pattern{size})
	want := strconv.Itoa(size) + " " + hex.EncodeToString(digest.Sum(nil))
	for name, length := range map[string]int64{"announced": size, "chunked": -1} {
		t.Run(name, func(t *testing.T) {
			var most int64
			body := &watched{pattern{size}, func() { most = max(most, requests.Held()) }}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/", body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = length
			if got := do(t, r); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if most > 1<<20 {
				t.Errorf("the gateway held %d bytes", most)
			}
		})
	}
}

// watched calls see at each read.
type watched struct {
	pattern
	see func()
}

func (w *watched) Read(b []byte) (int, error) { w.see(); return w.pattern.Read(b) }

func do(t *testing.T, r *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %q, %v", resp.StatusCode, b, err)
	}
	return string(b)
}

// A response of 96 MiB passes through a function of 32 MiB.
func TestResponseStreams(t *testing.T) {
	const size = 96 << 20
	_, url := openFlow(t)
	resp, err := http.Post(url+"/", "text/plain", strings.NewReader("send  "+strconv.Itoa(size)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

// A function that fails before it sent anything is answered with its error, one that fails later with
// a connection that is cut: the client must not take the part for the whole.
func TestStreamFails(t *testing.T) {
	b, url := openFlow(t)
	if w := b.request(http.MethodPost, "/flow/", "break 100"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "broken") {
		t.Errorf("early: status %d, %q", w.Code, w.Body)
	}
	resp, err := http.Post(url+"/", "text/plain", strings.NewReader("break 200000"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("late: got %d bytes, %v", n, err)
	}
}

// A body that is larger than the route takes ends with 413, announced or found on the way.
func TestStreamTooLarge(t *testing.T) {
	_, url := openFlow(t)
	for _, length := range []int64{100_000, -1} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/small", &pattern{100_000})
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = length
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(b), "`request`") {
			t.Errorf("length %d: status %d, %q", length, resp.StatusCode, b)
		}
	}
}

// A client that leaves in the middle of its body ends the call, whose slot serves the next.
func TestStreamClientLeaves(t *testing.T) {
	b, url := openFlow(t)
	ctx, leave := context.WithCancel(t.Context())
	from, to := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/", from)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	if _, err := to.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	running := func() int {
		n, _, _ := b.tenant.apps.Current("flow").Functions["stream"].Live()
		return n
	}
	b.eventually(func() bool { return running() == 1 })
	leave()
	to.CloseWithError(context.Canceled) // the client waits for its body
	if err := <-ended; err == nil {
		t.Error("the request was answered")
	}
	b.eventually(func() bool { return running() == 0 })
	b.mustCall("flow/stream", "hello", "5 "+hex.EncodeToString(sha256Of("hello")))
}

func sha256Of(s string) []byte {
	digest := sha256.Sum256([]byte(s))
	return digest[:]
}
