package state_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// tableStream is the stream of the table.
const tableStream = "KV_outboard"

// clusterOf returns the options of the servers of a cluster of three, for runServer.
func clusterOf(t *testing.T) [3]func(*natsserver.Options) {
	t.Helper()
	var all [3]func(*natsserver.Options)
	var routes []string
	for i := range all {
		port := statetest.FreePort(t)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
		all[i] = func(o *natsserver.Options) {
			o.ServerName, o.NoLog = fmt.Sprintf("s%d", i), true
			o.Cluster = natsserver.ClusterOpts{Name: "theirs", Host: "127.0.0.1", Port: port}
			o.Routes = natsserver.RoutesFromStr(strings.Join(routes[:i+1], ","))
		}
	}
	return all
}

// copiesOf returns how many copies the table has.
func copiesOf(ctx context.Context, t *testing.T, srv *natsserver.Server) int {
	t.Helper()
	js := jetStreamOf(t, srv)
	stream, err := js.Stream(ctx, tableStream)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().Config.Replicas
}

func jetStreamOf(t *testing.T, srv *natsserver.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// TestTableWaitsForRoom: a table is not created with one copy because the third server of a cluster has
// no room yet, here since its zone is that of another one.
func TestTableWaitsForRoom(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	servers, dir := clusterOf(t), t.TempDir()
	inZone := func(i int, zone string) func(*natsserver.Options) {
		return func(o *natsserver.Options) {
			servers[i](o)
			o.Tags, o.JetStreamUniqueTag = []string{"az:" + zone}, "az"
			if i == 2 {
				o.StoreDir = dir
			}
		}
	}
	first := runServer(t, inZone(0, "a"))
	runServer(t, inZone(1, "b"))
	third := runServer(t, inZone(2, "b"))
	waitForLeader(ctx, t, jetStreamOf(t, first))
	log, lines := io.Pipe()
	opened := make(chan error, 1)
	go func() {
		s, err := state.Connect(ctx, state.ConnectOptions{URL: first.ClientURL(), Logger: slog.New(slog.NewTextHandler(lines, nil))})
		if err == nil {
			err = s.Close()
		}
		opened <- errors.Join(err, lines.Close())
	}()
	waitForLine(t, log, "no room yet")
	third.Shutdown()
	third.WaitForShutdown()
	runServer(t, inZone(2, "c"))
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if n := copiesOf(ctx, t, first); n != state.Copies {
		t.Errorf("the table has %d copies, want %d", n, state.Copies)
	}
}

// waitForLeader waits until the servers of a cluster have a leader: before, they drop requests.
func waitForLeader(ctx context.Context, t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := js.AccountInfo(attempt)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// waitForLine reads a log until a line has a text, and then discards what follows.
func waitForLine(t *testing.T, log io.Reader, text string) {
	t.Helper()
	b := make([]byte, 4<<10)
	for {
		n, err := log.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b[:n]), text) {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return
		}
	}
}

// TestTableGetsMoreCopies: a table that was created with one copy gets three when a node connects to a
// cluster with servers for them.
func TestTableGetsMoreCopies(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var running []*natsserver.Server
	for _, options := range clusterOf(t) {
		running = append(running, runServer(t, options))
	}
	connect(t, running[0], nil)
	js := jetStreamOf(t, running[0])
	stream, err := js.Stream(ctx, tableStream)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Replicas = 1
	if _, err := js.UpdateStream(ctx, config); err != nil {
		t.Fatal(err)
	}
	connect(t, running[1], nil)
	if n := copiesOf(ctx, t, running[0]); n != state.Copies {
		t.Errorf("the table has %d copies, want %d", n, state.Copies)
	}
}
