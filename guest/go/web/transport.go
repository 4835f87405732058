package web

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"

	guest "github.com/outboard-run/outboard/guest/go"
)

// Transport sends a function's outgoing requests through the host. It implements http.RoundTripper,
// so an ordinary http.Client works with it:
//
//	client := http.Client{Transport: web.Transport{}}
//	resp, err := client.Get("https://api.example.com/v1/orders")
//
// The manifest lists the host in outgoing, and in the function's imports. The host of the function
// sends the request, verifies the server's certificate, and refuses private addresses unless the
// manifest and the operator allow them. Request and response are each passed as a whole, with a
// body of 16 MiB at most; a request may take 30 seconds, but not longer than the call's deadline.
type Transport struct{}

// RoundTrip sends one request.
func (Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL == nil || r.URL.Host == "" {
		return nil, errors.New("the request has no host")
	}
	var message bytes.Buffer
	if err := r.WriteProxy(&message); err != nil { // it writes the whole URI
		return nil, fmt.Errorf("write the request: %w", err)
	}
	service := guest.Outgoing(r.URL.Host)
	defer service.Close()
	answer, err := service.Call(message.Bytes())
	if err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), r)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return resp, nil
}
