package framed_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// Two ends in one process; between machines the connection comes from Dial and
// from Server with Options.TLS.
func Example() {
	near, far := net.Pipe()
	client := framed.Client(near, framed.Options{})
	server := framed.Server(far, framed.Options{})

	var mux framed.Mux
	mux.Handle("greet", framed.JSON(func(_ context.Context, _ *framed.Stream, name string) (string, error) {
		return "hello, " + name, nil
	}))
	mux.Handle("shout", func(_ context.Context, s *framed.Stream) error {
		text, err := io.ReadAll(s)
		if err != nil {
			return err
		}
		_, err = s.Write([]byte(strings.ToUpper(string(text))))
		return err
	})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error)
	go func() { served <- mux.Serve(ctx, server) }()

	var answer string
	if err := framed.Call(ctx, client, "greet", "dinghy", &answer); err != nil {
		fmt.Println(err)
	}
	fmt.Println(answer)

	s, err := client.Open(ctx, "shout", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(s, "land ho")
	_ = s.CloseWrite()
	text, _ := io.ReadAll(s)
	fmt.Println(string(text))

	fmt.Println(framed.Call(ctx, client, "nosuch", nil, nil))

	stop()
	<-served
	_ = client.Close()
	_ = server.Close()
	// Output:
	// hello, dinghy
	// LAND HO
	// nosuch: peer has no such method
}
