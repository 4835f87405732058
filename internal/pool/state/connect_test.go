package state_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// runServer runs a NATS server that has nothing to do with Outboard.
func runServer(t *testing.T, change func(*natsserver.Options)) *natsserver.Server {
	t.Helper()
	opts := &natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true}
	if change != nil {
		change(opts)
	}
	srv, err := natsserver.NewServer(opts)
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
	return srv
}

// connect opens the table on a server as a node does.
func connect(t *testing.T, srv *natsserver.Server, change func(*state.ConnectOptions)) *state.State {
	t.Helper()
	opts := state.ConnectOptions{URL: srv.ClientURL()}
	if change != nil {
		change(&opts)
	}
	s, err := state.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// withUser returns the URL of a server for a user.
func withUser(srv *natsserver.Server, user string) func(*state.ConnectOptions) {
	return func(o *state.ConnectOptions) { o.URL = strings.Replace(srv.ClientURL(), "://", "://"+user+"@", 1) }
}

// Logs and buckets are the same in an existing NATS cluster, whose table a node lends to its helper
// processes.
func TestExistingCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	node := connect(t, runServer(t, nil), nil)
	helper := statetest.Attach(ctx, t, "harbour", lendTo(t, node, ""))
	x := newExtras(ctx, t, node)
	x.check(ctx, t, helper)
	x.write(ctx, t, helper)
	x.check(ctx, t, node)
	l, err := node.OpenLog(ctx, "executions", state.LogOptions{MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(ctx, t, l, "t/app/new", 0, "kept for an hour")
	x.check(ctx, t, node)
}

// A helper process needs no credentials of the cluster: its node connects for it, as it has
// connected itself, and again when the cluster ends a connection.
func TestLentClusterAuthenticates(t *testing.T) {
	user := func(o *natsserver.Options) { o.Username, o.Password = "pool", "s3cret" }
	token := func(o *natsserver.Options) { o.Authorization = "s3cret" }
	for name, c := range map[string]struct {
		server func(*natsserver.Options)
		user   string
	}{"user": {user, "pool:s3cret"}, "token": {token, "s3cret"}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			srv := runServer(t, c.server)
			node := connect(t, srv, withUser(srv, c.user))
			cutter := statetest.NewCutter(lendTo(t, node, ""))
			helper := statetest.Attach(ctx, t, "harbour", cutter.Dial)
			for range 3 {
				if _, err := helper.Put(ctx, "nodes/harbour", []byte("{}"), 0); err != nil {
					t.Error(err)
				}
				cutter.Cut()
			}
		})
	}
}

// A node lends the table of an existing cluster no longer than it is a member of the pool: its helper
// processes are no clients of the cluster of their own.
func TestRemovedNodeLendsNoCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	errRemoved := errors.New("removed")
	var removed atomic.Bool
	node := connect(t, runServer(t, nil), func(o *state.ConnectOptions) {
		o.Member = func() error {
			if removed.Load() {
				return errRemoved
			}
			return nil
		}
	})
	near, err := lendTo(t, node, "tea")()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if err := near.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4<<10)
	if n, err := near.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "INFO ") {
		t.Fatalf("%q: %v, want the server's INFO", buf[:n], err)
	}
	removed.Store(true)
	for err == nil {
		_, err = near.Read(buf)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open: %v", err)
	}
	_, far := net.Pipe()
	if err := node.Lend(ctx, far, state.Borrower{Node: "harbour"}); !errors.Is(err, errRemoved) {
		t.Errorf("another connection: %v, want %v", err, errRemoved)
	}
}

// A user who may not use JetStream gets the cluster's refusal. The cluster does not answer such
// requests, so they would be repeated until the context ends.
func TestExistingClusterRefuses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	deny := &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Deny: []string{"$JS.>"}}}
	srv := runServer(t, func(o *natsserver.Options) {
		o.Users = []*natsserver.User{{Username: "other", Password: "x", Permissions: deny}}
	})
	for user, want := range map[string]string{"other:x": "needs the permission to use JetStream", "other:wrong": "--creds"} {
		opts := state.ConnectOptions{}
		withUser(srv, user)(&opts)
		s, err := state.Connect(ctx, opts)
		if err == nil {
			s.Close()
		}
		if outboard.KindOf(err) != outboard.Denied || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want Denied and %q", user, err, want)
		}
	}
}
