package object

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

// transport carries out the requests of a client.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// bucketBy returns a bucket whose requests are carried out by f.
func bucketBy(t *testing.T, f transport) *Bucket {
	t.Helper()
	b, err := Open(Options{Endpoint: "http://s3.example", Bucket: "data", Client: &http.Client{Transport: f}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// slowly reads with a pause before each 64 KiB.
type slowly struct {
	io.Reader
	pause time.Duration
}

func (s slowly) Read(buf []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Reader.Read(buf[:min(len(buf), 64<<10)])
}

func (slowly) Close() error { return nil }

// A server that accepts requests and never replies, or stops within its reply, is given up within
// minutes.
func TestSilentServers(t *testing.T) {
	for name, f := range map[string]transport{
		"no reply": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"a part of the content": func(r *http.Request) (*http.Response, error) {
			in, out := io.Pipe()
			go func() {
				_, _ = out.Write([]byte("part"))
				<-r.Context().Done()
				_ = out.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: http.StatusOK, ContentLength: 100, Body: in}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests, began := 0, time.Now()
				b := bucketBy(t, func(r *http.Request) (*http.Response, error) {
					requests++
					return f(r)
				})
				_, err := b.Get(t.Context(), "x", 1000)
				if took := time.Since(began); outboard.KindOf(err) != outboard.Unreachable || !errors.Is(err, errSilent) || requests != silentAttempts || took > 2*time.Minute {
					t.Errorf("%v after %d requests in %v, want that the server does not reply", err, requests, took)
				}
			})
		})
	}
}

// A link may be slow in both directions as long as bytes move: here 4 MiB take 3 minutes each.
func TestSlowLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content, requests := bytes.Repeat([]byte("x"), 4<<20), 0
		const pause = 3 * time.Minute / 65
		b := bucketBy(t, func(r *http.Request) (*http.Response, error) {
			requests++
			if r.Method == http.MethodGet {
				return &http.Response{StatusCode: http.StatusOK, ContentLength: int64(len(content)), Body: slowly{bytes.NewReader(content), pause}}, nil
			}
			got, err := io.ReadAll(slowly{r.Body, pause})
			if err == nil && !bytes.Equal(got, content) {
				err = errors.New("another content")
			}
			time.Sleep(50 * time.Second) // The last bytes are in the kernel.
			if err := errors.Join(err, r.Context().Err()); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		if err := b.Put(t.Context(), "x", content); err != nil || requests != 1 {
			t.Errorf("%v after %d requests", err, requests)
		}
		if got, err := b.Get(t.Context(), "x", 4<<20); err != nil || requests != 2 || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v after %d requests", len(got), err, requests)
		}
	})
}
