package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
	"unsafe"

	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/object"
	"github.com/outboard-run/outboard/internal/train/object/objecttest"
)

// The first argument of this program when it is started as a part of a measurement.
const (
	storeArg = "serve-store"
	rankArg  = "store-rank"
)

// helper runs a part of a measurement and returns the exit status.
func helper(run func(string) error, argument string) int {
	if err := run(argument); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serveStore serves a bucket from memory at an address until the process ends.
func serveStore(addr string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	server := http.Server{Handler: objecttest.New(object.Credentials{}), ReadHeaderTimeout: time.Minute}
	return server.Serve(l)
}

// A storeRank is one rank of a group that sums through the store.
type storeRank struct {
	Rank  int      `json:"rank"`
	Hosts []string `json:"hosts"` // of all ranks
	URL   string   `json:"url"`   // of the bucket
	Bytes int      `json:"bytes"`
	// Rounds is the number of measurements of each form, after a first call that does not count.
	Rounds int `json:"rounds"`
}

// A storeTiming is the output of a rank: seconds of each call.
type storeTiming struct {
	Pipelined []float64 `json:"pipelined"`
	Plain     []float64 `json:"plain"`
}

// runStoreRank makes the calls of a rank and prints the times. It ends with its standard input.
func runStoreRank(argument string) error {
	var r storeRank
	if err := json.Unmarshal([]byte(argument), &r); err != nil {
		return err
	}
	options, err := object.Parse(r.URL)
	if err != nil {
		return err
	}
	bucket, err := object.Open(options)
	if err != nil {
		return err
	}
	groups := map[bool]*collective.Group{}
	for _, plain := range []bool{false, true} {
		conns, err := r.connect(rankPorts[plain])
		if err != nil {
			return err
		}
		store := collective.Store{Objects: bucket, Prefix: fmt.Sprintf("sums/%v/", plain), Plain: plain}
		if groups[plain], err = collective.NewGroup(r.Rank, conns, collective.Options{Store: store}); err != nil {
			return err
		}
	}
	var t storeTiming
	for round := range r.Rounds + 1 {
		for _, plain := range []bool{false, true} {
			took, err := r.sum(groups[plain])
			if err != nil {
				return err
			}
			if round == 0 {
				continue
			}
			if plain {
				t.Plain = append(t.Plain, took)
			} else {
				t.Pipelined = append(t.Pipelined, took)
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until all ranks are done: a connection that ends is an error for the others
	return err
}

// sum makes one call, which all ranks begin together, and returns its time in seconds: until all
// ranks have the result.
func (r *storeRank) sum(g *collective.Group) (float64, error) {
	ctx := context.Background()
	words := make([]uint64, r.Bytes/8)
	buf := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), r.Bytes)
	for i := 0; i < len(buf); i += 4 {
		binary.LittleEndian.PutUint32(buf[i:], uint32(r.Rank+i))
	}
	barrier := collective.Call{Operation: collective.Barrier}
	if err := g.Do(ctx, barrier, nil); err != nil {
		return 0, err
	}
	began := time.Now()
	call := collective.Call{Operation: collective.AllReduce, Element: collective.Int32, Reduction: collective.Sum, Count: r.Bytes / 4, Store: true}
	if err := errors.Join(g.Do(ctx, call, buf), g.Do(ctx, barrier, nil)); err != nil {
		return 0, err
	}
	took := time.Since(began).Seconds()
	n := len(r.Hosts)
	for i := 0; i < len(buf); i += 4 << 10 {
		if got, want := binary.LittleEndian.Uint32(buf[i:]), uint32(n*(n-1)/2+n*i); got != want {
			return 0, fmt.Errorf("byte %d of the sum is %d, want %d", i, got, want)
		}
	}
	return took, nil
}

// rankPorts are the ports of the groups of both forms, the plain one and the other.
//
//nolint:gochecknoglobals // a table
var rankPorts = map[bool]string{false: "7500", true: "7501"}

// connect returns connections to all other ranks: each rank dials the ranks before it.
func (r *storeRank) connect(port string) ([]net.Conn, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(r.Hosts[r.Rank], port))
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	conns := make([]net.Conn, len(r.Hosts))
	for i := range r.Rank {
		conn, err := dialPatiently(net.JoinHostPort(r.Hosts[i], port))
		if err != nil {
			return nil, err
		}
		if err := binary.Write(conn, binary.BigEndian, uint32(r.Rank)); err != nil {
			return nil, err
		}
		conns[i] = conn
	}
	for range len(r.Hosts) - r.Rank - 1 {
		conn, err := listener.Accept()
		if err != nil {
			return nil, err
		}
		var from [4]byte
		if _, err := io.ReadFull(conn, from[:]); err != nil {
			return nil, err
		}
		conns[binary.BigEndian.Uint32(from[:])] = conn
	}
	return conns, nil
}

// dialPatiently connects to a rank that may still be starting.
func dialPatiently(addr string) (conn net.Conn, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if conn, err = new(net.Dialer).DialContext(context.Background(), "tcp", addr); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
