package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
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
	"github.com/outboard-run/outboard/bench/paired"
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

// roleStatus is the main function of such a process. It returns false in any other process.
func roleStatus() (status int, is bool) {
	if len(os.Args) < 2 || os.Args[1] != childArgument {
		return 0, false
	}
	if err := carryCalls(); err != nil {
		fmt.Fprintln(os.Stderr, "carry calls:", err)
		return 1, true
	}
	return 0, true
}

// carryCalls carries a node's calls. The second argument, if there is one, is the prefix of its
// profile's name.
func carryCalls() error {
	profile := ""
	if len(os.Args) > 2 {
		profile = fmt.Sprintf("%s-%d", os.Args[2], os.Getpid())
	}
	stop, err := paired.WriteProfile(profile)
	if err != nil {
		return err
	}
	err = calls.Run(context.Background(), os.NewFile(3, "control"), calls.ProcessOptions{
		Version: "bench", Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	return errors.Join(err, stop())
}

// A nodeRole has the calls of one or two nodes of a pool, without the other parts of the nodes.
// Each upgrade replaces the process that carries the calls.
type nodeRole struct {
	dir      string
	profile  string // prefix of the profiles of processes that carry calls; "": no profiles
	ca       *authority.Authority
	state    *state.State
	stations []*station
	serving  sync.WaitGroup
}

// A station is one node of the pool.
type station struct {
	name     outboard.NodeID
	member   *pool.Pool
	registry *services.Registry
	host     *calls.Host
	listener net.Listener // accepts connections of other nodes
	plain    string       // the address for plain gRPC
}

func (a *actor) node(ctx context.Context) error {
	s := &nodeRole{profile: a.spec.Profile}
	a.addr, a.close = a.spec.Listen, s.close
	a.commands["swap"] = decodeArgs(func(ctx context.Context, w swapping) (any, error) { return s.change(ctx, w) })
	a.commands["usage"] = func(context.Context, json.RawMessage) (any, error) { return familyUsage() } // with the processes that carry calls
	a.commands["plain"] = func(context.Context, json.RawMessage) (any, error) { return "tcp:" + s.stations[0].plain, nil }
	for _, target := range append([]string{a.spec.Listen}, a.spec.Others...) {
		if err := s.add(ctx, strings.TrimPrefix(target, "node:")); err != nil {
			return err
		}
	}
	_, err := s.stations[0].registry.Apply(ctx, "bench.yaml", a.spec.Policies)
	return err
}

// add starts one more node, whose programs connect at socket.
func (s *nodeRole) add(ctx context.Context, socket string) error {
	if s.ca == nil {
		if err := s.found(ctx, filepath.Dir(socket)); err != nil {
			return err
		}
	}
	st := &station{name: outboard.NodeID(fmt.Sprintf("bench%d", len(s.stations)))}
	s.stations = append(s.stations, st)
	keys, err := st.join(ctx, s)
	if err != nil {
		return err
	}
	programs, err := unixsock.Listen(socket)
	if err != nil {
		return err
	}
	plain, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	st.plain = plain.Addr().String()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	st.host, err = calls.OpenHost(ctx, calls.HostOptions{
		Config: calls.Config{Self: st.name, Boot: "1", Identity: keys},
		Launch: helper.Command(s.childCommand(st.name), log),
		State:  s.state, Registry: st.registry, Programs: programs, Plain: plain,
	})
	if err == nil {
		s.serving.Go(st.acceptPeers)
	}
	return err
}

func (s *nodeRole) childCommand(name outboard.NodeID) []string {
	args := []string{os.Args[0], childArgument}
	if s.profile != "" {
		args = append(args, s.profile+"-"+string(name))
	}
	return args
}

// found creates the pool: its authority and its state.
func (s *nodeRole) found(ctx context.Context, dir string) (err error) {
	s.dir = dir
	if s.ca, err = authority.Found(time.Now()); err != nil {
		return err
	}
	table := filepath.Join(dir, "state")
	if err := os.MkdirAll(table, 0o700); err != nil {
		return err
	}
	// A node writes the entries that have its own name in them: this is the name of the first node,
	// where services are offered.
	s.state, err = state.Open(ctx, state.Options{Dir: table, Name: "bench0", TLS: state.FixedTLS(&tls.Config{MinVersion: tls.VersionTLS13})})
	return err
}

// join makes the node a member of the pool, and returns the folder of its keys.
func (st *station) join(ctx context.Context, s *nodeRole) (keys string, err error) {
	keys = filepath.Join(s.dir, "keys-"+string(st.name))
	id, err := s.ca.NewIdentity(st.name, time.Now())
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(keys, 0o700), id.Save(keys)); err != nil {
		return "", err
	}
	if st.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // it does not wait
		return "", err
	}
	st.member, err = pool.Open(ctx, pool.Options{State: s.state, Identity: id, Self: outboard.Node{Boot: "1", Addr: st.listener.Addr().String()}})
	if err != nil {
		return "", err
	}
	st.registry, err = services.Open(ctx, services.Options{State: s.state, Members: st.member, Self: st.name, Boot: "1"})
	return keys, err
}

// acceptPeers passes the connections of other nodes to the process that carries calls.
func (st *station) acceptPeers() {
	for {
		nc, err := st.listener.Accept()
		if err != nil {
			return
		}
		if err := st.host.ServePeer(nc, nil); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		_ = nc.Close()
	}
}

// A change counts the replacements of the policies and of the process.
type change struct{ Swaps, Upgrades int }

// change replaces the policies and the process, evenly over the time.
func (s *nodeRole) change(ctx context.Context, w swapping) (change, error) {
	var done change
	var swapping sync.WaitGroup
	var failed error
	swapping.Go(func() {
		done.Swaps, failed = spread(ctx, w.Swaps, w.Seconds, func(i int) error {
			_, err := s.stations[0].registry.Apply(ctx, "bench.yaml", w.Sets[i%len(w.Sets)])
			return err
		})
	})
	upgrades, err := spread(ctx, w.Upgrades, w.Seconds, func(int) error {
		_, err := s.stations[0].host.Upgrade(ctx, "")
		return err
	})
	swapping.Wait()
	done.Upgrades = upgrades
	return done, errors.Join(err, failed)
}

// spread calls do a number of times, as evenly over the seconds as it can.
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
	for _, st := range s.stations {
		errs = append(errs, st.close())
	}
	s.serving.Wait()
	if s.state != nil {
		errs = append(errs, s.state.Close())
	}
	return errors.Join(errs...)
}

func (st *station) close() error {
	var errs []error
	if st.listener != nil {
		errs = append(errs, st.listener.Close())
	}
	if st.host != nil {
		errs = append(errs, st.host.Close())
	}
	if st.registry != nil {
		errs = append(errs, st.registry.Close())
	}
	if st.member != nil {
		errs = append(errs, st.member.Close())
	}
	return errors.Join(errs...)
}
