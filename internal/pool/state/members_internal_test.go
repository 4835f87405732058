package state

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// Voters are reached at the addresses of their last start, not at those at which they were chosen.
func TestVoterAddresses(t *testing.T) {
	m := newMembers()
	record := func(key string, value any, revision uint64) Entry {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return Entry{Key: key, Value: text, Revision: revision}
	}
	a, b := member{Name: "a", Addr: "a:1", Route: "a:2"}, member{Name: "b", Addr: "b:1", Route: "b:2"}
	moved := member{Name: "a", Addr: "c:1", Route: "c:2"}
	err := m.apply(Change{Entries: []Entry{
		record(memberPrefix+"a", a, 1), record(memberPrefix+"b", b, 2), record(votersKey, []member{a, b}, 3), record(memberPrefix+"a", moved, 4),
	}})
	if err != nil {
		t.Fatal(err)
	}
	voters, all, _ := m.view()
	if got, want := routes(voters), []string{"c:2", "b:2"}; !slices.Equal(got, want) {
		t.Errorf("routes %v, want %v", got, want)
	}
	if got, want := peerAddrs("b", voters, all), []string{"c:1"}; !slices.Equal(got, want) {
		t.Errorf("peers of b %v, want %v", got, want)
	}
}

// A node listens for other servers where the options of this start say, not where an earlier one did;
// a port that was chosen for it stays.
func TestRouteAddrFollowsOptions(t *testing.T) {
	dir := t.TempDir()
	choose := func(listen string) string {
		t.Helper()
		r, err := loadRole(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := &embedded{opts: Options{Listen: listen}, role: r}
		if err := e.chooseRouteAddr(); err != nil {
			t.Fatal(err)
		}
		return r.get().Route
	}
	if got := choose("127.0.0.1:7434"); got != "127.0.0.1:7434" {
		t.Errorf("it listens on %s first", got)
	}
	if got := choose("127.0.0.1:7501"); got != "127.0.0.1:7501" {
		t.Errorf("it listens on %s after another --listen", got)
	}
	if got := choose("127.0.0.1:0"); got != "127.0.0.1:7501" {
		t.Errorf("it listens on %s, with a port of its choice", got)
	}
}

// What a start waits for is in the log, with the addresses at which the node looks for it.
func TestWaitIsLogged(t *testing.T) {
	r, err := loadRole(t.TempDir(), []string{"10.0.0.1:7433"})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	e := &embedded{role: r, log: slog.New(slog.NewTextHandler(&log, nil))}
	refused := errors.New("connection refused")
	e.undialled.Store(&refused)
	e.logWait()
	for _, part := range []string{"10.0.0.1:7433", "connection refused", "--join"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q is not in the log: %s", part, log.String())
		}
	}
}
