package gateway_test

import (
	"bytes"
	"testing"

	"github.com/outboard-run/outboard/internal/gateway"
)

// FuzzEnvelope: what is unpacked and packed again is the same.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte("harbour\nthello"))
	f.Add([]byte("harbour.1f\nb\x00\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, letter, data, ok := gateway.ParseEnvelope(b)
		if !ok {
			return
		}
		if again := gateway.Envelope(name, letter, data); !bytes.Equal(again, b) {
			t.Errorf("got %q, want %q", again, b)
		}
	})
}

// FuzzOrders: what is taken of a function's answer has names that can be used.
func FuzzOrders(f *testing.F) {
	f.Add([]byte(`{"send": [{"to": "room:blue", "text": "x"}, {"to": "id:a.b", "data": "AAE="}], "join": ["red"], "leave": ["blue"], "close": true}`))
	f.Add([]byte(`{"send": [{"to": "room:"}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		rooms, receivers, err := gateway.Orders(b)
		if err != nil {
			return
		}
		for _, name := range rooms {
			if name == "" || len(name) > 256 {
				t.Errorf("room %q", name)
			}
		}
		for _, to := range receivers {
			if to != "self" && len(to) < len("id:x") {
				t.Errorf("to %q", to)
			}
		}
	})
}
