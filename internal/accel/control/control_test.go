package control

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

func TestRoundTrip(t *testing.T) {
	messages := map[string]Message{
		"config": {Type: TypeConfig, Config: &Config{
			Session: "s1", Memory: 1 << 30, Weight: 2, API: outboard.OpenCL, Device: 1, CacheDir: "/c", TmpDir: "/t", Owner: "o",
		}},
		"contended": {Type: TypeContended, On: true},
		"grant":     {Type: TypeGrant, Quantum: 2 * time.Millisecond},
		"request":   {Type: TypeRequest, Used: time.Millisecond},
		"stats":     {Type: TypeStats, Stats: &Stats{Memory: 5, Calls: 6, BytesIn: 7, BytesOut: 8}},
		"log":       {Type: TypeLog, Level: "warn", Text: "two\nlines"},
		"final":     {Type: TypeFinal, Kind: outboard.Exhausted, Reason: "why"},
	}
	for name, want := range messages {
		t.Run(name, func(t *testing.T) {
			node, worker := pair(t)
			if err := node.Send(want); err != nil {
				t.Fatal(err)
			}
			got, err := worker.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// pair returns both ends of a connection.
func pair(t testing.TB) (node, worker *Conn) {
	t.Helper()
	node, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if worker, err = FromFile(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = node.Close(), worker.Close() })
	return node, worker
}

// raw returns a node's end, and a worker's end that sends packets of any content.
func raw(t testing.TB) (node *Conn, worker net.Conn) {
	t.Helper()
	node, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if worker, err = net.FileConn(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = node.Close(), worker.Close() })
	return node, worker
}

func TestReceiveRefuses(t *testing.T) {
	tests := map[string]string{
		"no JSON":            "hello",
		"no type":            "{}",
		"empty config":       `{"type":"config"}`,
		"empty stats":        `{"type":"stats"}`,
		"negative time":      `{"type":"end","used_ns":-1}`,
		"a long packet":      `{"type":"log","text":"` + strings.Repeat("x", MaxMessage) + `"}`,
		"a size that is odd": `{"type":"config","config":{"memory":-5}}`,
	}
	for name, packet := range tests {
		t.Run(name, func(t *testing.T) {
			node, worker := raw(t)
			if _, err := worker.Write([]byte(packet)); err != nil {
				t.Fatal(err)
			}
			if m, err := node.Receive(); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("Receive returned %+v, %v", m, err)
			}
		})
	}
}

func TestEnd(t *testing.T) {
	node, worker := pair(t)
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("Receive at the end: %v, want EOF", err)
	}
}

// TestNotRead: a worker that does not read loses its connection.
func TestNotRead(t *testing.T) {
	node, worker := pair(t)
	var err error
	for err == nil {
		err = node.Send(Message{Type: TypeGrant})
	}
	if _, err := node.Receive(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the node's end: %v, want closed", err)
	}
	for err = nil; err == nil; {
		_, err = worker.Receive()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the worker's end: %v, want EOF", err)
	}
}

// TestLongReason: a reason of any length leaves room for the rest of its message.
func TestLongReason(t *testing.T) {
	node, worker := pair(t)
	worker.Final(errors.New(strings.Repeat("\x00", 2*MaxMessage)))
	m, err := node.Receive()
	if err != nil || m.Type != TypeFinal {
		t.Errorf("Receive: %v, %v", m.Type, err)
	}
}

// TestReadConfig: a process receives its configuration, and the program that it executes next
// receives what follows.
func TestReadConfig(t *testing.T) {
	node, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for _, m := range []Message{{Type: TypeConfig, Config: &Config{Session: "s"}}, {Type: TypeGrant, Quantum: 5}} {
		if err := node.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := ReadConfig(file); err != nil || c.Session != "s" {
		t.Errorf("got %+v, %v", c, err)
	}
	worker, err := FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	if m, err := worker.Receive(); err != nil || m.Type != TypeGrant {
		t.Errorf("got %+v, %v, want the second message", m, err)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add(`{"type":"config","config":{"session":"s","memory":1073741824}}`)
	f.Add(`{"type":"grant","quantum_ns":5}`)
	f.Add(`{"type":"final","final_kind":"exhausted","reason":"x","body_file":true}`)
	f.Fuzz(func(t *testing.T, packet string) {
		node, worker := raw(t)
		if _, err := worker.Write([]byte(packet)); err != nil || worker.Close() != nil {
			return // too long for the socket, or empty
		}
		m, err := node.Receive()
		if err == nil && (m.Type == "" || m.Type == TypeConfig && m.Config == nil) {
			t.Fatalf("received %+v", m)
		}
	})
}
