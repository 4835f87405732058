package api

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

func TestAnswer(t *testing.T) {
	tests := map[string]struct {
		out    any
		err    error
		status int
		body   string
	}{
		"list":    {[]int{1, 2}, nil, 200, "[1,2]\n"},
		"nothing": {Nothing{}, nil, 200, "{}\n"},
		"no JSON": {math.Inf(1), nil, 500, `{"kind":0,"error":"json: unsupported value: +Inf"}` + "\n"},
		"refused": {nil, outboard.Errorf(outboard.NotFound, "", "there is no boat"), 404, `{"kind":2,"error":"there is no boat"}` + "\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			Answer(func(*http.Request) (any, error) { return test.out, test.err })(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != test.status || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("status %d, %v", w.Code, w.Header())
			}
			if diff := cmp.Diff(w.Body.String(), test.body); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestServeEnds stops a server during a request that honours its context, and during one that
// does not.
func TestServeEnds(t *testing.T) {
	for name, obedient := range map[string]bool{"with its requests": true, "and cuts off what is left": false} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			began, over := make(chan struct{}), make(chan struct{})
			defer close(over)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			grace := time.Minute
			if !obedient {
				grace = time.Millisecond
			}
			go func() {
				done <- Serve(ctx, l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					close(began)
					if obedient {
						<-r.Context().Done()
					} else {
						<-over
					}
				}), grace)
			}()
			asked := make(chan error, 1)
			go func() { asked <- get(t.Context(), "http://"+l.Addr().String()) }()
			<-began
			cancel()
			if err := <-done; obedient == errors.Is(err, context.DeadlineExceeded) || obedient && err != nil {
				t.Errorf("served: %v", err)
			}
			if err := <-asked; obedient != (err == nil) {
				t.Errorf("asked: %v", err)
			}
		})
	}
}

func get(ctx context.Context, url string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return errors.Join(err, r.Body.Close())
}
