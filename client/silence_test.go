package client_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// A node that is stopped accepts connections and answers nothing: commands end with an error, as
// they do for a node that has died.
func TestSilentNode(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	c.SetSilence(time.Millisecond, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, call := range map[string]func() error{
		"status": func() error { _, err := c.Status(ctx); return err },
		"stop":   func() error { return c.Stop(ctx) },
	} {
		err := call()
		if outboard.KindOf(err) != outboard.Unreachable || !strings.Contains(err.Error(), c.Data+"/lock has the process's id") {
			t.Errorf("%s of a node that does not answer: %v", name, err)
		}
	}
}

// A request that takes long is waited for as long as the node answers others.
func TestSlowRequest(t *testing.T) {
	checks := make(chan struct{}, 1)
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			select {
			case checks <- struct{}{}:
			case <-r.Context().Done():
			}
			return
		}
		for range 3 {
			<-checks
		}
		_, _ = w.Write([]byte(`{"node":"harbour"}`))
	}))
	c.SetSilence(time.Millisecond, time.Minute)
	if status, err := c.Status(t.Context()); err != nil || status.Node != "harbour" {
		t.Errorf("the status %+v: %v", status, err)
	}
}
