package oip_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// rawInfer returns the header of an inference request with a JSON and a binary part, of which size
// bytes follow the JSON, and the JSON.
func rawInfer(size int, fields ...string) (head, text string) {
	text = fmt.Sprintf(`{"parameters":{"timeout":7000},"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}]}`, size, size)
	fields = append([]string{
		"POST /v2/models/echo/infer HTTP/1.1", "Host: localhost",
		fmt.Sprintf("Content-Length: %d", len(text)+size), fmt.Sprintf("Inference-Header-Content-Length: %d", len(text)),
	}, fields...)
	return strings.Join(fields, "\r\n") + "\r\n\r\n", text
}

// dialRaw connects to a server on which refuse decides, without a limit of time but the test's.
func dialRaw(t *testing.T, refuse func(r *serve.Request, rows int) error) (net.Conn, *bufio.Reader) {
	t.Helper()
	server := httptest.NewServer(oip.New(oip.Options{Models: &echo{refuse: refuse}}))
	t.Cleanup(server.Close)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// readAnswer reads a response, and returns its status and whether the connection ends.
func readAnswer(t *testing.T, in *bufio.Reader) (status int, closes bool) {
	t.Helper()
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Close
}

func write(t *testing.T, to io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

var errFull = outboard.Errorf(outboard.Exhausted, "infer", "the queue is full")

// A refused request is answered while its client still has most of the body to send, and the
// connection serves the next request once the body has been sent.
func TestRefuseBeforeTheBody(t *testing.T) {
	const size = 256 << 10
	for name, c := range map[string]struct {
		sendsJSON bool
		refuse    func(r *serve.Request, rows int) error
	}{
		"by the header": {false, func(_ *serve.Request, rows int) error {
			if rows > 0 {
				return nil
			}
			return errFull
		}},
		"by the JSON": {true, func(r *serve.Request, rows int) error {
			if rows != size || r.Timeout != 7*time.Millisecond || r.Model != "echo" {
				return nil
			}
			return errFull
		}},
	} {
		t.Run(name, func(t *testing.T) {
			conn, in := dialRaw(t, c.refuse)
			head, text := rawInfer(size)
			first, rest := head, text+strings.Repeat("x", size)
			if c.sendsJSON {
				first, rest = head+text, rest[len(text):]
			}
			for range 2 {
				write(t, conn, first)
				if status, closes := readAnswer(t, in); status != http.StatusServiceUnavailable || closes {
					t.Fatalf("status %d, and the connection ends: %t", status, closes)
				}
				write(t, conn, rest)
			}
		})
	}
}

// A client that waits for the status 100 gets the refusal instead, and one with a long body is told
// that the connection ends. Neither sends any of its body.
func TestRefuseEndsTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		fields []string
	}{"waits for 100": {4 << 10, []string{"Expect: 100-continue"}}, "long": {4 << 20, nil}} {
		t.Run(name, func(t *testing.T) {
			conn, in := dialRaw(t, func(*serve.Request, int) error { return errFull })
			head, _ := rawInfer(c.size, c.fields...)
			write(t, conn, head)
			if status, closes := readAnswer(t, in); status != http.StatusServiceUnavailable || !closes {
				t.Fatalf("status %d, and the connection ends: %t", status, closes)
			}
			if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("after the response: %v", err)
			}
		})
	}
}

// The rest of a refused request's body is never taken for a request, though its client stops to
// send it.
func TestRestOfARefusedBodyIsNoRequest(t *testing.T) {
	conn, in := dialRaw(t, func(*serve.Request, int) error { return errFull })
	head, _ := rawInfer(4 << 10)
	write(t, conn, head+"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if status, _ := readAnswer(t, in); status != http.StatusServiceUnavailable {
		t.Fatalf("status %d", status)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the response: %v", err)
	}
}

// A request that is accepted is read as a whole, and its tensors follow the JSON.
func TestAcceptAfterTheJSON(t *testing.T) {
	asked := 0
	conn, in := dialRaw(t, func(*serve.Request, int) error { asked++; return nil })
	head, text := rawInfer(3)
	write(t, conn, head+text+"abc")
	if status, _ := readAnswer(t, in); status != http.StatusOK || asked != 2 {
		t.Errorf("status %d after %d questions", status, asked)
	}
}

// checked is a model that compares its input with the name of the request, and returns nothing.
type checked struct {
	echo

	t *testing.T
}

func (c *checked) Infer(_ context.Context, r *serve.Request) (*serve.Response, error) {
	want := []byte(r.ID)[0]
	for _, at := range []int{0, 1, 2} { // others may write meanwhile
		runtime.Gosched()
		if data := r.Inputs[0].Data; len(data) != largeInput || bytes.Count(data, []byte{want}) != len(data) {
			c.t.Errorf("request %s has the contents of another one, at check %d", r.ID, at)
		}
	}
	return &serve.Response{Model: r.Model, Version: 3}, nil
}

const largeInput = 1 << 20

// The binary tensors of large requests lie in memory of earlier ones, and never in that of others.
func TestLargeInputsReuseMemory(t *testing.T) {
	h := oip.New(oip.Options{Models: &checked{t: t}})
	send := func(id byte) {
		text := fmt.Sprintf(`{"id":%q,"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"parameters":{"binary_data_size":%d}}]}`, string(id), largeInput, largeInput)
		contents := strings.NewReader(strings.Repeat(string(id), largeInput))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v2/models/echo/infer", io.MultiReader(strings.NewReader(text), contents))
		r.ContentLength = int64(len(text)) + contents.Size()
		r.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(text)))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("request %c: %d, %s", id, w.Code, w.Body)
		}
	}
	const clients, each = 4, 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for range each {
				send(byte('a' + client))
			}
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	// The test itself makes each request's contents anew.
	if took := after.TotalAlloc - before.TotalAlloc; took > clients*each*largeInput*3/2 {
		t.Errorf("%d requests of %d bytes allocate %d bytes", clients*each, largeInput, took)
	}
}
