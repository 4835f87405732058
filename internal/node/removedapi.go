package node

import (
	"net/http"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// membersOnly refuses requests that need the pool on a node that was removed from it, whose own
// requests are not answered any more.
func membersOnly(id *authority.Identity, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if authority.IsRemoved(id) && needsPool(r) {
			api.Refuse(w, authority.ErrRemoved)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// needsPool reports whether the response to a request needs the pool, and not only what this node
// knows.
func needsPool(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r.URL.Path == "/v1/executions" || strings.Contains(r.URL.Path, "/executions/")
	}
	local := []string{"/v1/stop", "/v1/upgrade", "/v1/sessions/", "/v1/artifacts"}
	return !slices.ContainsFunc(local, func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) })
}
