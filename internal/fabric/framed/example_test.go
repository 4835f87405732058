package framed_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// Two ends in one process; between machines the connections come from Dial and from
// Server with Options.TLS.
func Example() {
	near, far := net.Pipe()
	client := framed.Client(near, framed.Options{})
	server := framed.Server(far, framed.Options{})

	served := make(chan error)
	go func() {
		s, err := server.Accept(context.Background())
		if err != nil {
			served <- err
			return
		}
		text, err := io.ReadAll(s)
		if err == nil {
			_, err = s.Write([]byte(strings.ToUpper(string(text))))
		}
		s.Reset(err) // nil closes it
		served <- err
	}()

	s, err := client.Open(context.Background(), "shout", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(s, "land ho")
	_ = s.CloseWrite()
	text, err := io.ReadAll(s)
	fmt.Println(string(text), err)

	fmt.Println(<-served)
	_ = client.Close()
	_ = server.Close()
	// Output:
	// LAND HO <nil>
	// <nil>
}
