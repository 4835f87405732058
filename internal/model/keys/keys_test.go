package keys_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/keys"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

func open(t *testing.T, now func() time.Time) *keys.Keys {
	t.Helper()
	k, err := keys.Open(t.Context(), keys.Options{State: statetest.Open(t), Self: "harbour", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func create(t *testing.T, k *keys.Keys, name string, life time.Duration, l keys.Limits) string {
	t.Helper()
	key, token, err := k.Create(t.Context(), name, life, l)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(key.Digest, token) || !strings.HasPrefix(token, "obk_"+key.ID) {
		t.Errorf("token %q of %+v", token, key)
	}
	return token
}

func TestAdmission(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := open(t, func() time.Time { return now })
	if g, err := k.Admit("anything"); g != nil || err != nil {
		t.Errorf("without keys: %v, %v", g, err)
	}
	token := create(t, k, "app", time.Hour, keys.Limits{Models: []string{"small"}})
	for name, text := range map[string]string{"none": "", "other": "obk_000000000000_x", "secret": token[:len(token)-1] + "!", "no form": "Bearer"} {
		if _, err := k.Admit(text); outboard.KindOf(err) != outboard.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	g, err := k.Admit(token)
	if err != nil || g.Allows("small") != nil || g.Allows("big") == nil {
		t.Errorf("grant %+v, %v", g, err)
	}
	now = now.Add(2 * time.Hour)
	if _, err := k.Admit(token); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("expired: %v", err)
	}
	if !k.Any() {
		t.Error("a pool whose keys have expired is open")
	}
}

func TestLimitsAndCounts(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := open(t, func() time.Time { return now })
	token := create(t, k, "app", 0, keys.Limits{RequestsPerMinute: 2, TokensPerMinute: 100})
	for i := range 3 {
		_, err := k.Admit(token)
		if got := outboard.KindOf(err) == outboard.Busy; got != (i == 2) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	now = now.Add(time.Minute)
	g, err := k.Admit(token)
	if err != nil {
		t.Fatal(err)
	}
	g.Count(100, 50)
	if _, err := k.Admit(token); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("with 50 tokens of debt: %v", err)
	}
	now = now.Add(time.Minute)
	if _, err := k.Admit(token); err != nil {
		t.Errorf("after the debt: %v", err)
	}
	u := k.List()[0].Usage
	if u.Requests != 4 || u.Refused != 2 || u.PromptTokens != 100 || u.GeneratedTokens != 50 {
		t.Errorf("usage %+v", u)
	}
}

// A refusal names the time after which a request is admitted, in its text and for Retry-After.
func TestLimitsNameTheWait(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := open(t, func() time.Time { return now })
	for want, limits := range map[time.Duration]keys.Limits{
		time.Minute: {RequestsPerMinute: 1}, time.Second: {RequestsPerMinute: 500}, 91 * time.Second: {TokensPerMinute: 100},
	} {
		token := create(t, k, "app", 0, limits)
		var err error
		for err == nil {
			var g *keys.Grant
			if g, err = k.Admit(token); err == nil {
				g.Count(100, 150)
			}
		}
		limit, ok := errors.AsType[interface {
			error
			RetryAfter() time.Duration
		}](err)
		if !ok || limit.RetryAfter() != want || !strings.HasSuffix(err.Error(), "try again in "+want.String()) {
			t.Errorf("%+v: %v, want after %v", limits, err, want)
		}
		now = now.Add(want)
		if _, err := k.Admit(token); err != nil {
			t.Errorf("%+v: after %v: %v", limits, want, err)
		}
		if _, err := k.Revoke(t.Context(), "app"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRevoke(t *testing.T) {
	k := open(t, nil)
	token := create(t, k, "a", 0, keys.Limits{})
	create(t, k, "b", 0, keys.Limits{})
	if _, err := k.Revoke(t.Context(), "c"); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("unknown: %v", err)
	}
	if _, err := k.Revoke(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Admit(token); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("revoked: %v", err)
	}
}

// A name does not keep a key from being revoked: another node may make keys that have the
// identifiers of others as their names.
func TestRevokeByIdentifier(t *testing.T) {
	k := open(t, nil)
	victim, _, err := k.Create(t.Context(), "victim", 0, keys.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, k, victim.ID, 0, keys.Limits{})
	if revoked, err := k.Revoke(t.Context(), victim.ID); err != nil || revoked.Name != "victim" {
		t.Errorf("%+v, %v", revoked, err)
	}
}

// A joined node makes a key that expires at a time that can be read and not be written again: the
// list of keys does not have it.
func TestTimesOfHostileNodes(t *testing.T) {
	s := statetest.Open(t)
	k, err := keys.Open(t.Context(), keys.Options{State: s, Self: "harbour"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	create(t, k, "own", 0, keys.Limits{})
	const never = `"2026-01-01T00:00:00+24:00"`
	digest := strings.Repeat("0", 64)
	for key, value := range map[string]string{
		"model-keys/dinghy/0000000000000000": `{"id":"0000000000000000","name":"evil","digest":"` + digest + `","expires":` + never + `}`,
		"model-usage/KEY/dinghy":             `{"last_used":` + never + `}`,
	} {
		if _, err := s.Put(t.Context(), strings.Replace(key, "KEY", k.List()[0].ID, 1), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	create(t, k, "later", 0, keys.Limits{}) // this node knows the others then
	if text, err := json.Marshal(k.List()); err != nil || len(k.List()) != 2 {
		t.Errorf("keys %s, %v", text, err)
	}
}

// Each request of a call that lasts is admitted: its key may be revoked or expire meanwhile, and its
// limits hold.
func TestReadmission(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	k := open(t, func() time.Time { return now })
	admit := func(token string) context.Context {
		t.Helper()
		ctx, err := k.AdmitContext(t.Context(), http.Header{"X-Api-Key": {token}}, true)
		if err != nil {
			t.Fatal(err)
		}
		return ctx
	}
	want := func(what string, ctx context.Context, kind outboard.Kind) {
		t.Helper()
		if err := k.Readmit(ctx); outboard.KindOf(err) != kind || (err == nil) != (kind == outboard.Other) {
			t.Errorf("%s: %v", what, err)
		}
	}
	open := admit("")
	want("before there are keys", open, outboard.Other)
	limited := admit(create(t, k, "limited", time.Hour, keys.Limits{RequestsPerMinute: 2}))
	revoked := admit(create(t, k, "revoked", 0, keys.Limits{}))
	want("without a key", open, outboard.Denied)
	want("a function", t.Context(), outboard.Other)
	want("within the limit", limited, outboard.Other)
	want("beyond it", limited, outboard.Busy)
	want("before it is revoked", revoked, outboard.Other)
	if _, err := k.Revoke(t.Context(), "revoked"); err != nil {
		t.Fatal(err)
	}
	want("revoked", revoked, outboard.Denied)
	now = now.Add(time.Hour)
	want("expired", limited, outboard.Denied)
}

func TestCountsOutliveTheNode(t *testing.T) {
	s := statetest.Open(t)
	open := func() *keys.Keys {
		k, err := keys.Open(t.Context(), keys.Options{State: s, Self: "harbour"})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := open()
	token := create(t, k, "app", 0, keys.Limits{})
	g, err := k.Admit(token)
	if err != nil {
		t.Fatal(err)
	}
	g.Count(3, 4)
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k = open()
	defer func() { _ = k.Close() }()
	if u := k.List()[0].Usage; u.Requests != 1 || u.GeneratedTokens != 4 {
		t.Errorf("usage %+v", u)
	}
}

func TestGuard(t *testing.T) {
	k := open(t, nil)
	var admitted *keys.Grant
	h := k.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { admitted = keys.FromContext(r.Context()) }),
		func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusUnauthorized) })
	request := func(remote, host, token string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models", nil)
		r.RemoteAddr, r.Host = remote, host
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for name, c := range map[string]struct {
		remote, host string
		want         int
	}{
		"loopback": {"127.0.0.1:5", "localhost:8080", 200}, "IPv6": {"[::1]:5", "[::1]:8080", 200},
		"elsewhere": {"192.0.2.1:5", "localhost:8080", 401}, "rebound": {"127.0.0.1:5", "evil.example:8080", 401},
	} {
		if got := request(c.remote, c.host, "unused"); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
	for origin, want := range map[string]int{"https://evil.example": 401, "http://localhost:3000": 401, "null": 401, "http://localhost:8080": 200} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v2/repository/models/m/unload", http.NoBody)
		r.RemoteAddr, r.Host = "127.0.0.1:5", "localhost:8080"
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a page of %s: %d, want %d", origin, w.Code, want)
		}
	}
	token := create(t, k, "app", 0, keys.Limits{})
	if got := request("192.0.2.1:5", "pool.example", token); got != 200 || admitted == nil || admitted.Key.Name != "app" {
		t.Errorf("with a key: %d, %+v", got, admitted)
	}
	if got := request("127.0.0.1:5", "localhost", ""); got != 401 {
		t.Errorf("without a key: %d", got)
	}
}

// A key loads and unloads models only where it says so; a pool without keys serves its own machine,
// whose users may.
func TestAdministration(t *testing.T) {
	k := open(t, nil)
	var none *keys.Grant
	if err := none.Administers(); err != nil {
		t.Errorf("without keys: %v", err)
	}
	for admin, want := range map[bool]outboard.Kind{false: outboard.Denied, true: outboard.Other} {
		g, err := k.Admit(create(t, k, "app", 0, keys.Limits{Admin: admin}))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Administers(); outboard.KindOf(err) != want && (err != nil || !admin) {
			t.Errorf("admin %t: %v", admin, err)
		}
	}
}

// A key belongs to the node that made it: another one with its identifier is ignored, and its end
// does not end the key.
func TestForeignKeyIsIgnored(t *testing.T) {
	s := statetest.Open(t)
	k, err := keys.Open(t.Context(), keys.Options{State: s, Self: "harbour"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	key, token, err := k.Create(t.Context(), "app", 0, keys.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	foreign := key
	foreign.Digest = strings.Repeat("0", 64)
	text, err := json.Marshal(foreign)
	if err != nil {
		t.Fatal(err)
	}
	revision, err := s.Create(t.Context(), "model-keys/dinghy/"+key.ID, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), "model-keys/dinghy/"+key.ID, revision); err != nil {
		t.Fatal(err)
	}
	// A key that is made later is known when the changes before it are.
	create(t, k, "later", 0, keys.Limits{})
	if g, err := k.Admit(token); err != nil || g == nil {
		t.Errorf("the key of this node: %v, %v", g, err)
	}
	if _, err := k.Revoke(t.Context(), "app"); err != nil {
		t.Error(err)
	}
}
