package node

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool/authority"
)

// TestRequestsOfRemovedNodes: what needs the pool is refused at once on a node that was removed
// from it; what only the node knows is still answered.
func TestRequestsOfRemovedNodes(t *testing.T) {
	ca, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id, err := ca.NewIdentity("harbour", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h := membersOnly(id, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	request := func(line string) *httptest.ResponseRecorder {
		method, path, _ := strings.Cut(line, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w
	}
	local := []string{
		"GET /v1/status", "GET /healthz", "GET /metrics", "GET /v1/apps", "GET /v1/nodes", "POST /v1/stop", "DELETE /v1/sessions/s",
		"PUT /v1/artifacts/sha256:0", "HEAD /v1/artifacts/sha256:0", "POST /v1/upgrade", "GET /v1/apps/shop/logs",
	}
	pooled := []string{
		"POST /v1/apps", "DELETE /v1/apps/shop", "POST /v1/tokens", "DELETE /v1/nodes/dinghy", "POST /v1/leases", "POST /v1/policies",
		"GET /v1/executions", "GET /v1/apps/shop/executions/e", "POST /v1/apps/shop/workflows/w/executions", "POST /v1/models", "PUT /v1/data/d",
	}
	for _, line := range append(local, pooled...) {
		if w := request(line); w.Code != http.StatusNoContent {
			t.Errorf("%s: %d on a member", line, w.Code)
		}
	}
	authority.MarkRemoved(id)
	for _, line := range local {
		if w := request(line); w.Code != http.StatusNoContent {
			t.Errorf("%s: %d: %s", line, w.Code, w.Body)
		}
	}
	for _, line := range pooled {
		if w := request(line); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "was removed from the pool") {
			t.Errorf("%s: %d: %s", line, w.Code, w.Body)
		}
	}
}
