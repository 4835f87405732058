package node_test

import (
	"net/http"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/outboardtest"
)

// The Open Inference Protocol is served to clients with a key only as soon as the pool has one, and
// a key that names models reaches no other.
func TestModelsNeedTheirKey(t *testing.T) {
	n := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour", NoDevices: true}}}).Node("harbour")
	status, err := n.Client().Status(t.Context())
	if err != nil || status.HTTP == "" {
		t.Fatalf("%+v, %v", status, err)
	}
	get := func(path, key string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+status.HTTP+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := get("/v2/models/small", ""); got != http.StatusNotFound {
		t.Errorf("without keys: %d", got)
	}
	key, err := n.Client().CreateModelKey(t.Context(), client.ModelKeyRequest{Name: "site", Models: []string{"small"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, key string
		want      int
	}{
		{"/v2/models/small", "", http.StatusUnauthorized},
		{"/v2/models/small", "obk_000000000000_X", http.StatusUnauthorized},
		{"/v2/models/small", key.Token, http.StatusNotFound},
		{"/v2/models/other", key.Token, http.StatusForbidden},
		{"/v1/models", "", http.StatusUnauthorized},
	} {
		if got := get(c.path, c.key); got != c.want {
			t.Errorf("%s with %q: %d, want %d", c.path, c.key, got, c.want)
		}
	}
}
