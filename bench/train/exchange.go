package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
)

// exchangeArg is the first argument of this program when it is started as an end of an exchange.
const exchangeArg = "exchange"

// An exchangeEnd is one end of a plain exchange over TCP: each end sends as many bytes as it receives,
// without encryption and without anything else.
type exchangeEnd struct {
	Addr   string  `json:"addr"`
	Listen bool    `json:"listen"`
	Sizes  []int   `json:"sizes"`
	Rounds int     `json:"rounds"`
	Length float64 `json:"length"` // of a round, in seconds
}

// exchangePort is the port of the end that listens.
const exchangePort = "7790"

// exchangeTimes returns the seconds of plain exchanges between two nodes, by size: what the link and
// TCP take by themselves.
func exchangeTimes(ctx context.Context, from, to *rig.Node, rounds int) (map[int][]float64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := exchangeEnd{Addr: net.JoinHostPort(host, exchangePort), Listen: true, Sizes: sizes, Rounds: rounds, Length: 0.3}
	command := func(n *rig.Node) (*exec.Cmd, error) {
		argument, err := json.Marshal(end)
		return n.Exec(ctx, self, exchangeArg, string(argument)), err
	}
	other, err := command(to)
	if err != nil {
		return nil, err
	}
	if err := other.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		_ = other.Wait() // It has ended, or is killed.
	}()
	end.Listen = false
	cmd, err := command(from)
	if err != nil {
		return nil, err
	}
	problems := &strings.Builder{}
	cmd.Stderr = problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("exchange: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	times := make(map[int][]float64)
	return times, json.Unmarshal(out, &times)
}

// runExchange is the process of an end. The end that does not listen prints the seconds of an
// exchange, by size and round.
func runExchange(argument string) error {
	var e exchangeEnd
	if err := json.Unmarshal([]byte(argument), &e); err != nil {
		return err
	}
	conn, err := e.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	times := make(map[int][]float64)
	for _, size := range e.Sizes {
		out, in := make([]byte, size), make([]byte, size)
		first := time.Now()
		if err := exchangeOnce(conn, out, in); err != nil {
			return err
		}
		count := []byte{byte(min(max(3, int(e.Length/time.Since(first).Seconds())), 255))}
		if e.Listen { // Both ends make as many.
			_, err = io.ReadFull(conn, count)
		} else {
			_, err = conn.Write(count)
		}
		if err != nil {
			return err
		}
		for range e.Rounds {
			began := time.Now()
			for range count[0] {
				if err := exchangeOnce(conn, out, in); err != nil {
					return err
				}
			}
			times[size] = append(times[size], time.Since(began).Seconds()/float64(count[0]))
		}
	}
	if e.Listen {
		return nil
	}
	return json.NewEncoder(os.Stdout).Encode(times)
}

// exchangeOnce sends and receives at the same time.
func exchangeOnce(conn net.Conn, out, in []byte) error {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(out)
		sent <- err
	}()
	if _, err := io.ReadFull(conn, in); err != nil {
		return err
	}
	return <-sent
}

func (e *exchangeEnd) connect() (net.Conn, error) {
	if e.Listen {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", e.Addr)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		return l.Accept()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.Addr)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
