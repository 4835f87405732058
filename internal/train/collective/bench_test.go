package collective

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// loopback returns the connections of two ranks over TCP.
func loopback(b *testing.B) (x, y net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if x, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if y, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	return x, y
}

func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x, y := loopback(b)
			one, err := NewGroup(0, []net.Conn{nil, x}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			two, err := NewGroup(1, []net.Conn{y, nil}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			all := []*Group{one, two}
			defer closeAll(all)
			bufs := [][]byte{words(size), words(size)}
			c := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: size / 4}
			b.SetBytes(int64(size))
			b.ResetTimer()
			for _, err := range everybody(all, func(g *Group) error {
				for range b.N {
					if err := g.Do(context.Background(), c, bufs[g.Rank()]); err != nil {
						return err
					}
				}
				return nil
			}) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
