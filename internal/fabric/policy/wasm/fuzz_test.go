package wasm

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/wasmbin"
)

// FuzzModule gives modules of any bytes to the compiler, and calls to those that it
// takes. Nothing may panic, and everything has to end.
func FuzzModule(f *testing.F) {
	for _, a := range assemblies() {
		f.Add(a.bytes())
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		m, err := Compile(code, Options{Memory: 16, Steps: 10_000, Timeout: time.Second})
		if err != nil {
			return
		}
		c := &fake{payload: []byte("payload"), metadata: map[string]string{"x-user": "ann"}}
		for range 2 {
			_, _ = m.Request(c)
			_ = m.Response(c, 13)
		}
	})
}

// FuzzCalls calls the functions for modules with any addresses and lengths.
func FuzzCalls(f *testing.F) {
	f.Add(byte(0), int32(1024), int32(6), int32(4096), int32(64))
	f.Add(byte(3), int32(-1), int32(-1), int32(-1), int32(-1))
	f.Add(byte(4), int32(99), int32(65535), int32(2), int32(0))
	f.Fuzz(func(t *testing.T, function byte, a, b, c, d int32) {
		function %= 5
		arguments := []int32{a, b, c, d}[:[]int{4, 4, 4, 3, 3}[function]]
		var body []byte
		for _, v := range arguments {
			body = wasmbin.AppendSigned(append(body, 0x41), int64(v))
		}
		m, err := Compile(raw(append(body, 0x10, function), function < 4), Options{})
		if err != nil {
			t.Fatal(err)
		}
		call := &fake{payload: make([]byte, 50), metadata: map[string]string{"": "empty"}}
		if v, _ := m.Request(call); v.Denied && (v.Code == 0 || v.Code > 16) {
			t.Errorf("denied with code %d", v.Code)
		}
	})
}

// raw is a module whose on_request has these instructions.
func raw(body []byte, result bool) []byte {
	if result {
		body = append(body, 0x1a)
	}
	a := &assembly{functions: map[string]string{"on_request": string(body)}, raw: true}
	return a.bytes()
}

func BenchmarkRequest(b *testing.B) {
	for _, name := range []string{"allow", "guest"} {
		b.Run(name, func(b *testing.B) {
			m := compiled(b, name, Options{})
			c := &fake{metadata: map[string]string{"x-user": "ann"}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Request(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
