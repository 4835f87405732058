package node

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/health"
)

type brokenPlane struct{ err error }

func (p *brokenPlane) Health() error { return p.err }

// Health comes from what works, and heals by itself.
func TestHealth(t *testing.T) {
	state, board := &brokenPlane{}, &health.Board{}
	h := &healthReport{board: board, sources: map[string]healthSource{"state": state}}
	get := func() (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		return w.Code, w.Body.String()
	}
	if code, body := get(); code != 200 || body != "\"ok\"\n" {
		t.Errorf("got %d %q", code, body)
	}
	state.err = errors.New("the disk is full")
	board.Report("gateway", errors.New("too many open files"))
	if code, body := get(); code != 503 || !strings.Contains(body, "the disk is full") || !strings.Contains(body, "too many open files") {
		t.Errorf("got %d %q", code, body)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(h)
	if families, err := registry.Gather(); err != nil || len(families) != 1 || len(families[0].GetMetric()) != 2 {
		t.Errorf("metrics: %v, %v", families, err)
	}
	state.err = nil
	board.Report("gateway", nil)
	if code, body := get(); code != 200 {
		t.Errorf("got %d %q", code, body)
	}
}
