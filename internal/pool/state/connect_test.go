package state_test

import (
	"context"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// Logs and buckets are the same in an existing NATS cluster, where processes
// connect by themselves.
func TestExistingCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	srv, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the server does not listen")
	}
	open := func() *state.State {
		s, err := state.Connect(ctx, state.ConnectOptions{URL: srv.ClientURL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	node, helper := open(), open()
	x := newExtras(ctx, t, node)
	x.check(ctx, t, helper)
	x.write(ctx, t, helper)
	x.check(ctx, t, node)
	l, err := node.OpenLog(ctx, "test", state.LogOptions{MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(ctx, t, l, "t/app/new", 0, "kept for an hour")
	x.check(ctx, t, helper)
}

// A user who may not use JetStream gets the cluster's refusal. The cluster does not answer such
// requests, so they would be repeated until the context ends.
func TestExistingClusterRefuses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	deny := &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Deny: []string{"$JS.>"}}}
	srv, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
		Users: []*natsserver.User{{Username: "other", Password: "x", Permissions: deny}},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(2 * time.Minute) {
		t.Fatal("the server does not listen")
	}
	for user, want := range map[string]string{"other:x": "needs the permission to use JetStream", "other:wrong": "--creds"} {
		url := strings.Replace(srv.ClientURL(), "nats://", "nats://"+user+"@", 1)
		s, err := state.Connect(ctx, state.ConnectOptions{URL: url})
		if err == nil {
			s.Close()
		}
		if outboard.KindOf(err) != outboard.Denied || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want Denied and %q", user, err, want)
		}
	}
}
