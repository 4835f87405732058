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
			a, b := net.Pipe()
			node, worker := New(a), New(b)
			defer node.Close()
			defer worker.Close()
			failed := make(chan error, 1)
			go func() { failed <- node.Send(want) }()
			got, err := worker.Receive()
			if err := errors.Join(err, <-failed); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReceiveRefuses(t *testing.T) {
	tests := map[string]string{
		"no JSON":            "hello\n",
		"no type":            "{}\n",
		"empty config":       `{"type":"config"}` + "\n",
		"empty stats":        `{"type":"stats"}` + "\n",
		"negative time":      `{"type":"end","used_ns":-1}` + "\n",
		"a line too long":    `{"type":"log","text":"` + strings.Repeat("x", MaxLine) + "\"}\n",
		"a size that is odd": `{"type":"config","config":{"memory":-5}}` + "\n",
	}
	for name, line := range tests {
		t.Run(name, func(t *testing.T) {
			if m, err := New(pipe{strings.NewReader(line)}).Receive(); err == nil {
				t.Errorf("Receive took %+v", m)
			}
		})
	}
}

func TestEnd(t *testing.T) {
	if _, err := New(pipe{strings.NewReader("")}).Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("Receive at the end: %v, want EOF", err)
	}
}

// TestLongReason: a reason of any length leaves room for the rest of its line.
func TestLongReason(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go New(a).Final(errors.New(strings.Repeat("\x00", 2*MaxLine)))
	m, err := New(b).Receive()
	if err != nil || m.Type != TypeFinal {
		t.Errorf("Receive: %v, %v", m.Type, err)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add(`{"type":"config","config":{"session":"s","memory":1073741824}}` + "\n")
	f.Add(`{"type":"grant","quantum_ns":5}` + "\n{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := New(pipe{strings.NewReader(text)})
		for {
			m, err := c.Receive()
			if err != nil {
				return
			}
			if m.Type == "" || m.Type == TypeConfig && m.Config == nil {
				t.Fatalf("took %+v", m)
			}
		}
	})
}

type pipe struct{ io.Reader }

func (pipe) Write(b []byte) (int, error) { return len(b), nil }
func (pipe) Close() error                { return nil }
