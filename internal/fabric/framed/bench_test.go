package framed

import (
	"context"
	"io"
	"testing"
)

func serveEcho(ctx context.Context, c *Conn) {
	var m Mux
	m.Handle("echo", func(_ context.Context, s *Stream) error {
		b := make([]byte, 64<<10)
		for {
			n, err := s.Read(b)
			if err != nil {
				return clean(err)
			}
			if _, err := s.Write(b[:n]); err != nil {
				return err
			}
		}
	})
	m.Handle("sink", func(_ context.Context, s *Stream) error {
		b := make([]byte, 512<<10)
		for {
			if _, err := s.Read(b); err != nil {
				return clean(err)
			}
		}
	})
	_ = m.Serve(ctx, c)
}

func BenchmarkPingPong(b *testing.B) {
	for _, name := range []string{"tcp", "tls"} {
		b.Run(name, func(b *testing.B) {
			client, server := transports[name](b, Options{})
			go serveEcho(b.Context(), server)
			s, err := client.Open(b.Context(), "echo", nil)
			if err != nil {
				b.Fatal(err)
			}
			p := make([]byte, 64)
			for b.Loop() {
				if _, err := s.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(s, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for _, name := range []string{"tcp", "tls"} {
		b.Run(name, func(b *testing.B) {
			client, server := transports[name](b, Options{})
			go serveEcho(b.Context(), server)
			s, err := client.Open(b.Context(), "sink", nil)
			if err != nil {
				b.Fatal(err)
			}
			p := make([]byte, 4<<20)
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				if _, err := s.Write(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
