package state_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// lendTo returns how a process of a tenant connects to a state.
func lendTo(t *testing.T, s *state.State, tenant string) func() (net.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var lending sync.WaitGroup
	t.Cleanup(func() { cancel(); lending.Wait() })
	return func() (net.Conn, error) {
		near, far := net.Pipe()
		lending.Go(func() { _ = s.Lend(ctx, far, state.Borrower{Node: "harbour", Tenant: tenant}) }) // until either end
		return near, nil
	}
}

type tenantDialer func() (net.Conn, error)

func (d tenantDialer) InProcessConn() (net.Conn, error) { return d() }

// TestTenantReadsItsOwn: a process of a tenant that a guest has taken over reads the secrets of no
// other tenant, neither in the table nor in what changes.
func TestTenantReadsItsOwn(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { checkReads(t, statetest.Open(t)) })
	t.Run("existing cluster", func(t *testing.T) { checkReads(t, connect(t, runServer(t, nil), nil)) })
}

func checkReads(t *testing.T, s *state.State) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put := func(key, value string) {
		t.Helper()
		if _, err := s.Put(ctx, key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	const other = `{"versions":[{"number":1,"app":{"app":"pot","tenant":"coffee"},"secrets":{"key":"c2VjcmV0"}}]}`
	put("apps/pot", other)
	put("model-keys/n/k", "c2VjcmV0")
	put("apps/cup", `{"versions":[{"number":1,"app":{"app":"cup","tenant":"tea"},"secrets":{"key":"b3du"}}]}`)
	dial := lendTo(t, s, "tea")
	tea := statetest.AttachTenant(ctx, t, "harbour", "tea", dial)
	x, err := nats.Connect("", nats.InProcessServer(tenantDialer(dial)), nats.CustomInboxPrefix("_INBOX.harbour.tenant-tea"), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	heard := make(chan *nats.Msg, 100)
	if _, err := x.ChanSubscribe("outboard.changes.>", heard); err != nil {
		t.Fatal(err)
	}
	if err := x.FlushWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	seen := make(chan state.Change, 100)
	if err := tea.Watch(ctx, func(c state.Change) { seen <- c }); err != nil {
		t.Fatal(err)
	}
	put("apps/pot", strings.Replace(other, `"number":1`, `"number":2`, 1))
	put("policies", "c2VjcmV0")
	put("apps/cup", `{"versions":[{"number":2,"app":{"app":"cup","tenant":"tea"}}]}`)

	secret := func(where, text string) {
		t.Helper()
		if strings.Contains(text, "c2VjcmV0") || strings.Contains(text, "model-keys") {
			t.Errorf("%s: it sees %s", where, text)
		}
	}
	found := map[string]bool{}
	for last := []byte{}; !strings.Contains(string(last), `"number":2,"app":{"app":"cup"`); {
		last = lastOf(found, seen, secret)
	}
	if !found["apps/pot"] || !found["apps/cup"] {
		t.Errorf("it saw %v, want the names of all apps", found)
	}
	for range 3 {
		select {
		case m := <-heard:
			secret("changes", m.Subject+string(m.Data)+m.Header.Get("Nats-Subject"))
		case <-ctx.Done():
			t.Fatal("no changes are heard")
		}
	}
	for _, request := range []string{`{"last_by_subj":"$KV.outboard.apps.pot"}`, `{"seq":2}`, `{"last_by_subj":"$KV.outboard.policies"}`} {
		for _, api := range []string{"$JS.API.DIRECT.GET.KV_outboard", "$JS.API.STREAM.MSG.GET.KV_outboard"} {
			m, err := x.RequestWithContext(ctx, api, []byte(request))
			if err != nil {
				t.Fatal(err)
			}
			var leader struct {
				Message struct {
					Data []byte `json:"data"`
				} `json:"message"`
			}
			_ = json.Unmarshal(m.Data, &leader) // A direct get answers with the data itself.
			secret(api+" "+request, string(m.Data)+string(leader.Message.Data)+m.Header.Get("Nats-Subject"))
		}
	}
	pot, err := tea.Get(ctx, "apps/pot")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tea.Update(ctx, "apps/pot", []byte(`{"versions":[{"app":{"app":"pot","tenant":"tea"}}]}`), pot.Revision, 0); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("it changes another tenant's app: %v", err)
	}
}

// lastOf returns the last value of the next change, and notes and checks all of its entries.
func lastOf(found map[string]bool, seen <-chan state.Change, check func(where, text string)) (last []byte) {
	c := <-seen
	for _, e := range c.Entries {
		found[e.Key] = true
		check("watch", e.Key+string(e.Value))
		last = e.Value
	}
	return last
}

// TestTenantHearsNothingOfOthers: a process of a tenant that a guest has taken over subscribes to the
// answers, rooms and events of another tenant, and to its node's answers. It hears none of them, and
// takes no message from the other's trigger.
func TestTenantHearsNothingOfOthers(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { checkHeard(t, statetest.Open(t)) })
	t.Run("existing cluster", func(t *testing.T) { checkHeard(t, connect(t, runServer(t, nil), nil)) })
}

func checkHeard(t *testing.T, s *state.State) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	coffee := statetest.AttachTenant(ctx, t, "harbour", "coffee", lendTo(t, s, "coffee"))
	x, err := nats.Connect("", nats.InProcessServer(tenantDialer(lendTo(t, s, "tea"))), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	heard := make(chan *nats.Msg, 100)
	for _, subject := range []string{"_INBOX.harbour.>", "_INBOX.harbour.tenant-coffee.>", "_INBOX.>", "rooms.coffee.>", "rooms.>", "events.coffee.>", "done"} {
		if _, err := x.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	const queue = "outboard/coffee/pot/work"
	if _, err := x.ChanQueueSubscribe("orders.new", queue, heard); err != nil {
		t.Fatal(err)
	}
	if err := x.FlushWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	var received atomic.Int32
	ended := make(chan struct{})
	stop, err := coffee.Subscribe("orders.new", queue, func(state.Message) {
		if received.Add(1) == 50 {
			close(ended)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := coffee.Get(ctx, "apps/pot"); err != nil && !errors.Is(err, state.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, "policies", []byte("secret"), 0); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := coffee.Publish(ctx, "orders.new", []byte("an order")); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{"rooms.coffee.cup.b.c", "events.coffee.pot", "done"} {
		if err := coffee.Publish(ctx, subject, []byte("secret")); err != nil {
			t.Fatal(err)
		}
	}
	for m := range heard {
		if m.Subject == "done" {
			break
		}
		t.Errorf("it hears %s", m.Subject)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Errorf("the trigger got %d messages of 50", received.Load())
	}
}
