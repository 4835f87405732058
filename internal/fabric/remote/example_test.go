package remote_test

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/remote"
)

// upper serves unary calls of any method: it answers in upper case.
type upper struct{}

func (upper) Serve(s call.ServerStream) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	defer m.Free()
	return s.Send(&call.Message{Data: []byte(strings.ToUpper(string(m.Data)))})
}

// Two ends in one process; between machines the connection comes from Dial and Serve.
func Example() {
	near, far := net.Pipe()
	client := remote.New(framed.Client(near, framed.Options{}), remote.Options{})
	server := remote.New(framed.Server(far, framed.Options{}), remote.Options{Handler: upper{}})

	head := &call.Head{Method: "/harbour.Signals/Shout"}
	answer, _, err := client.Unary(context.Background(), head, &call.Message{Data: []byte("land ho")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(answer.Data))
	answer.Free()

	go client.Close()
	_ = server.Close()
	_ = client.Close()
	// Output: LAND HO
}
