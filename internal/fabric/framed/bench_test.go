package framed

import (
	"context"
	"io"
	"testing"
)

// serveEcho echoes the bytes of streams of the method "echo", and reads those of others.
func serveEcho(ctx context.Context, c *Conn) {
	for {
		s, err := c.Accept(ctx)
		if err != nil {
			return
		}
		go func() {
			b := make([]byte, 512<<10)
			for {
				n, err := s.Read(b)
				if err == nil && s.Method() == "echo" {
					_, err = s.Write(b[:n])
				}
				if err != nil {
					s.Reset(withoutEOF(err))
					return
				}
			}
		}()
	}
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

// BenchmarkPieces sends a stream of messages of 16 KiB.
func BenchmarkPieces(b *testing.B) {
	client, server := tlsPair(b, Options{})
	go serveEcho(b.Context(), server)
	s, err := client.Open(b.Context(), "sink", nil)
	if err != nil {
		b.Fatal(err)
	}
	p := Piece{Prefix: make([]byte, 5), Data: make([]byte, 16<<10+8)}
	b.SetBytes(int64(p.size()))
	for b.Loop() {
		if err := s.Send(p); err != nil {
			b.Fatal(err)
		}
	}
}
