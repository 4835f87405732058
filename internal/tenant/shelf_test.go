package tenant

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// A version whose files no node in reach has may be had later: who needs it must not take
// that for an answer.
func TestVersionOutOfReach(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy(other, nil)
	app, _ := b.tenant.apps.registry.Get("other")
	v := app.Versions[0]
	v.Number, v.Files = 7, map[string]string{"guest.wasm": artifact.Digest([]byte("gone"))}
	if _, err := b.tenant.rebuilt(t.Context(), &v); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("got %v", err)
	}
}

// A version that many executions need at the same time is built once.
func TestVersionIsBuiltOnce(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy(other, nil)
	b.mustDeploy(other+"# again\n", nil)
	s := b.tenant.apps
	s.mu.Lock()
	first := s.places["other"].versions[1]
	delete(s.places["other"].versions, 1)
	s.mu.Unlock()
	b.tenant.ended(first)
	found := make([]*version, 16)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			v, err := b.tenant.versionOf(t.Context(), "other", 1)
			if err != nil {
				t.Error(err)
				return
			}
			found[i] = v
		})
	}
	all.Wait()
	for _, v := range found {
		if v != found[0] {
			t.Fatal("there are several")
		}
		b.tenant.ended(v)
	}
}

// An app that is deployed and can't be served here yet is not one that there is not.
func TestNotReadyHere(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy(other, nil)
	app, _ := b.tenant.apps.registry.Get("other")
	v := app.Versions[0]
	v.App.Name, v.Files = "late", map[string]string{"guest.wasm": artifact.Digest([]byte("gone"))}
	if _, err := b.tenant.apps.registry.Apply(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() bool { _, err := b.call("late/far", ""); return outboard.KindOf(err) == outboard.Unreachable })
	if w := b.request("GET", "/late/x", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "not ready on this node") {
		t.Errorf("status %d, %q, %q", w.Code, w.Header(), w.Body)
	}
	b.eventually(func() bool {
		_, err := b.call("late/far", "")
		return outboard.KindOf(err) == outboard.Unreachable && strings.HasPrefix(err.Error(), "app late failed to become ready on this node: ")
	})
	if w := b.request("GET", "/never/x", ""); w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}
