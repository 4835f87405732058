package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// silence bounds the wait for a node that is stopped (SIGSTOP, a frozen container): its kernel still
// accepts connections.
type silence struct {
	checkAfter time.Duration // how long a response is waited for before the node is checked
	limit      time.Duration // how long the check may take
}

func defaultSilence() silence { return silence{checkAfter: 10 * time.Second, limit: 20 * time.Second} }

// silentNode is the error of a request to a node that answers no request at all.
func (c *Client) silentNode() error {
	return outboard.Errorf(outboard.Unreachable, "ask the node", "the node with the data folder %s does not answer: "+
		"its process is stopped, or has no share of the processors; %s has the process's id", c.Folder(), filepath.Join(c.Folder(), "lock"))
}

// roundTrip sends a request on a connection of its own: requests are few, and a lease lives as long
// as its connection. A response may take as long as the node answers other requests.
func (c *Client) roundTrip(request *http.Request, s silence) (*http.Response, error) {
	ctx, answered := context.WithCancel(request.Context())
	var watcher sync.WaitGroup
	var silent atomic.Bool
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(dialing context.Context, _, _ string) (net.Conn, error) {
		conn, err := c.dial(dialing, "", "")
		if err != nil {
			return nil, err
		}
		watcher.Go(func() {
			if c.awaitSilence(ctx, s) {
				silent.Store(true)
				_ = conn.Close() // the request ends with an error
			}
		})
		return conn, nil
	}}
	response, err := transport.RoundTrip(request)
	answered()
	if err == nil {
		return response, nil
	}
	watcher.Wait()
	if silent.Load() {
		return nil, c.silentNode()
	}
	return nil, c.unreachable(request.Context(), err)
}

// awaitSilence returns true once the node answers nothing, and false when ctx ends.
func (c *Client) awaitSilence(ctx context.Context, s silence) bool {
	wait := time.NewTimer(s.checkAfter)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-wait.C:
		}
		if !c.answers(ctx, s.limit) {
			return ctx.Err() == nil
		}
		wait.Reset(s.checkAfter)
	}
}

// answers reports whether the node answers a request within limit. A node that has ended breaks the
// connections of all requests by itself.
func (c *Client) answers(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/healthz", http.NoBody)
	if err != nil {
		return true // the request is a constant
	}
	transport := &http.Transport{DialContext: c.dial, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return !errors.Is(err, context.DeadlineExceeded)
	}
	_ = response.Body.Close() // its content does not matter
	return true
}
