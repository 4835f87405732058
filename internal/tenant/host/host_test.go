package host_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/api"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// errKilled is how a process ends that does not end by itself.
var errKilled = errors.New("signal: killed: its log ends with: still reading")

// launch starts processes that send messages, and then end if end is an error.
func launch(end error, messages ...tenant.Ready) host.Launcher {
	return launchFunc(func(ctx context.Context, node *ipc.Conn) error {
		m, err := node.Receive(ctx)
		if err != nil || m.Type != tenant.TypeConfig {
			return fmt.Errorf("got %v, %w, want the configuration", m, err)
		}
		for _, r := range messages {
			_ = node.Send(tenant.TypeReady, r) // the node may be gone
		}
		if end == nil {
			for { // until the node closes the socket, or kills the process
				m, err := node.Receive(ctx)
				if err != nil {
					return errKilled
				}
				m.Close()
			}
		}
		return end
	})
}

func launchFunc(run func(context.Context, *ipc.Conn) error) host.Launcher {
	start := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		node, err := ipc.FromFile(socket, ipc.Options{})
		if err != nil {
			return err
		}
		defer node.Close()
		return run(ctx, node)
	})
	return func(socket *os.File) (host.Launched, error) { return start("", socket) }
}

// Whoever wants a process that does not become ready is told why, and so is the log.
func TestNotReady(t *testing.T) {
	const building = "it builds version 3 of app shop"
	tests := map[string]struct {
		launch host.Launcher
		limits host.Options
		want   []string // of the error
		logged string
	}{
		"it takes long": {
			launch(nil, tenant.Ready{Doing: "it starts"}, tenant.Ready{Doing: building}),
			host.Options{ReadyTimeout: 3 * time.Second, ReportInterval: 500 * time.Millisecond},
			[]string{"the process of tenant shop: it is not ready after ", building, "try again later"},
			"a tenant's process is not ready yet",
		},
		"it says nothing": {
			launch(nil),
			host.Options{ReadyTimeout: time.Second, ReportInterval: 20 * time.Millisecond},
			[]string{"it has not said yet what it does"},
			"a tenant's process is not ready yet",
		},
		"it takes too long": {
			launch(nil, tenant.Ready{Doing: building}),
			host.Options{StartLimit: time.Millisecond, ReportInterval: 2 * time.Second},
			[]string{"it was not ready after 1ms, and was ended: " + building, "(signal: killed: its log ends with: still reading)"},
			building,
		},
		"it crashes": {
			launch(errors.New("exit status 2: panic: boom"), tenant.Ready{Doing: building}),
			host.Options{},
			[]string{"it ended before it was ready: exit status 2: panic: boom"},
			"panic: boom",
		},
		"it sends too much": {
			launch(nil, tenant.Ready{Doing: strings.Repeat("x", 64<<10)}),
			host.Options{},
			[]string{"a packet of more than 65536 bytes"},
			"a packet of more than",
		},
		"it sends something else": {
			launchFunc(func(ctx context.Context, node *ipc.Conn) error {
				_ = node.Send("status", nil)
				<-ctx.Done()
				return errKilled
			}),
			host.Options{},
			[]string{"unexpected message of type \"status\"", "signal: killed"},
			"unexpected message",
		},
		"it says why": {
			launch(errors.New("exit status 1"), tenant.Ready{Error: "state: no room"}),
			host.Options{},
			[]string{"state: no room (exit status 1)"},
			"state: no room",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log safeBuffer
			opts := test.limits
			opts.Dir, opts.Launch, opts.Logger = t.TempDir(), test.launch, slog.New(slog.NewTextHandler(&log, nil))
			opts.StartLimit, opts.ReadyTimeout = cmp.Or(opts.StartLimit, time.Hour), cmp.Or(opts.ReadyTimeout, time.Hour)
			h, err := host.Open(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = h.Config(t.Context(), "shop")
			if outboard.KindOf(err) != outboard.Unreachable {
				t.Errorf("kind %v", outboard.KindOf(err))
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(log.String(), test.logged) {
				t.Errorf("the log lacks %q:\n%s", test.logged, log.String())
			}
		})
	}
}

// A process that is ready, however slowly it says so, is there.
func TestReady(t *testing.T) {
	h, err := host.Open(t.Context(), host.Options{Dir: t.TempDir(), Launch: launch(nil, tenant.Ready{Doing: "it starts"}, tenant.Ready{PID: 7})})
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.Config(t.Context(), "shop")
	if err != nil || c.Tenant != "shop" {
		t.Errorf("got %+v, %v", c, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A process that no longer responds is killed, and another one started.
func TestUnresponsiveProcessIsKilled(t *testing.T) {
	launched := make(chan struct{}, 10)
	silent := launch(nil, tenant.Ready{PID: 7})
	h, err := host.Open(t.Context(), host.Options{Dir: t.TempDir(), PingInterval: time.Millisecond, PingLimit: time.Millisecond, Launch: func(socket *os.File) (host.Launched, error) {
		launched <- struct{}{}
		return silent(socket)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Config(t.Context(), "shop"); err != nil && outboard.KindOf(err) != outboard.Unreachable {
		t.Error(err)
	}
	<-launched
	<-launched
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Health names a process that ended, and heals when it runs again.
func TestHealth(t *testing.T) {
	end := make(chan struct{})
	runs := 0 // the host starts one process after the other
	h, err := host.Open(t.Context(), host.Options{Dir: t.TempDir(), Launch: launchFunc(func(ctx context.Context, node *ipc.Conn) error {
		m, err := node.Receive(ctx)
		if err != nil {
			return err
		}
		m.Close()
		if runs++; runs == 2 {
			return errors.New("exit status 2")
		}
		_ = node.Send(tenant.TypeReady, tenant.Ready{PID: 7})
		first := runs == 1
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = node.Receive(ctx) // until the node closes the socket
		}()
		if first {
			<-end
			return errors.New("exit status 1")
		}
		<-closed
		return errKilled
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	c, err := h.Config(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", c.ControlSocket())
	if err != nil {
		t.Fatal(err)
	}
	var condition atomic.Pointer[error]
	server := &http.Server{Handler: api.Answer(func(*http.Request) (api.Nothing, error) {
		if e := condition.Load(); e != nil {
			return api.Nothing{}, *e
		}
		return api.Nothing{}, nil
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	if err := h.Health(t.Context()); err != nil {
		t.Errorf("a process that answers: %v", err)
	}
	full := error(outboard.Errorf(outboard.Exhausted, "the pool's state", "no space"))
	condition.Store(&full)
	if err := h.Health(t.Context()); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("a process that can't write: %v", err)
	}
	condition.Store(nil)
	close(end)
	seen := false
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		err := h.Health(t.Context())
		seen = seen || err != nil && strings.Contains(err.Error(), "the process of tenant shop")
		if seen && err == nil {
			return
		}
	}
	t.Errorf("the end of a process was reported: %v, and it did not heal", seen)
}
