package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// childArgument makes this program a process that carries a node's calls.
const childArgument = "carry-calls"

// roleStatus is the main function of such a process; false: this one is none.
func roleStatus() (status int, is bool) {
	if len(os.Args) < 2 || os.Args[1] != childArgument {
		return 0, false
	}
	err := calls.Run(context.Background(), os.NewFile(3, "control"), calls.ProcessOptions{
		Version: "bench", Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "carry calls:", err)
		return 1, true
	}
	return 0, true
}

// A nodeRole is the calls of a node, and nothing else of it: the process that carries
// them is another one each time it is upgraded.
type nodeRole struct {
	state    *state.State
	member   *pool.Pool
	registry *services.Registry
	host     *calls.Host
}

func (a *actor) node(ctx context.Context) error {
	s := new(nodeRole)
	a.addr, a.close = a.spec.Listen, s.close
	a.does["swap"] = decodeArgs(func(ctx context.Context, w swapping) (any, error) { return s.change(ctx, w) })
	return s.open(ctx, strings.TrimPrefix(a.spec.Listen, "node:"), a.spec.Policies)
}

func (s *nodeRole) open(ctx context.Context, socket, policies string) error {
	keys, err := s.join(ctx, filepath.Dir(socket))
	if err != nil {
		return err
	}
	if _, err := s.registry.Apply(ctx, "bench.yaml", policies); err != nil {
		return err
	}
	programs, err := unixsock.Listen(socket)
	if err != nil {
		return err
	}
	s.host, err = calls.OpenHost(ctx, calls.HostOptions{
		Config: calls.Config{Self: "bench", Boot: "1", Identity: keys},
		Launch: helper.Command([]string{os.Args[0], childArgument}, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
		State:  s.state, Registry: s.registry, Programs: programs,
	})
	return err
}

// join founds a pool of one node, and returns where its keys are.
func (s *nodeRole) join(ctx context.Context, dir string) (keys string, err error) {
	keys = filepath.Join(dir, "keys")
	ca, err := authority.Found(time.Now())
	if err != nil {
		return "", err
	}
	id, err := ca.NewIdentity("bench", time.Now())
	if err != nil {
		return "", err
	}
	table := filepath.Join(dir, "state")
	if err := errors.Join(os.MkdirAll(keys, 0o700), os.MkdirAll(table, 0o700), id.Save(keys)); err != nil {
		return "", err
	}
	s.state, err = state.Open(ctx, state.Options{Dir: table, Name: "state", TLS: state.FixedTLS(&tls.Config{MinVersion: tls.VersionTLS13})})
	if err != nil {
		return "", err
	}
	nowhere := net.JoinHostPort("127.0.0.1", "1") // no other node comes
	s.member, err = pool.Open(ctx, pool.Options{State: s.state, Identity: id, Self: outboard.Node{Boot: "1", Addr: nowhere}})
	if err != nil {
		return "", err
	}
	s.registry, err = services.Open(ctx, services.Options{State: s.state, Members: s.member, Self: "bench", Boot: "1"})
	return keys, err
}

// A change is how often the policies and the process were replaced.
type change struct{ Swaps, Upgrades int }

// change replaces the policies and the process, evenly over the time.
func (s *nodeRole) change(ctx context.Context, w swapping) (change, error) {
	var done change
	var swapping sync.WaitGroup
	var failed error
	swapping.Go(func() {
		done.Swaps, failed = spread(ctx, w.Swaps, w.Seconds, func(i int) error {
			_, err := s.registry.Apply(ctx, "bench.yaml", w.Sets[i%len(w.Sets)])
			return err
		})
	})
	upgrades, err := spread(ctx, w.Upgrades, w.Seconds, func(int) error {
		_, err := s.host.Upgrade(ctx, "")
		return err
	})
	swapping.Wait()
	done.Upgrades = upgrades
	return done, errors.Join(err, failed)
}

// spread does something so often within a time, as evenly as it can.
func spread(ctx context.Context, times int, seconds float64, do func(int) error) (done int, err error) {
	began := time.Now()
	pause := time.Duration(seconds / float64(max(times, 1)) * float64(time.Second))
	for i := range times {
		time.Sleep(time.Until(began.Add(time.Duration(i) * pause)))
		if ctx.Err() != nil {
			return i, ctx.Err()
		}
		if err := do(i); err != nil {
			return i, err
		}
	}
	return times, nil
}

func (s *nodeRole) close() error {
	var errs []error
	if s.host != nil {
		errs = append(errs, s.host.Close())
	}
	if s.registry != nil {
		errs = append(errs, s.registry.Close())
	}
	if s.member != nil {
		errs = append(errs, s.member.Close())
	}
	if s.state != nil {
		errs = append(errs, s.state.Close())
	}
	return errors.Join(errs...)
}
