package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Hand gives a tenant's process a connection, of which first was read already. After an
// error the connection is still the caller's, to answer and to close.
func (h *Host) Hand(ctx context.Context, name string, conn *net.TCPConn, first []byte) error {
	c, err := h.Config(ctx, name)
	if err != nil {
		return err
	}
	door, err := unixsock.Dial(ctx, c.ConnsSocket())
	if err != nil {
		return outboard.Errorf(outboard.Unreachable, "the process of tenant "+name, "%w", err)
	}
	defer door.Close()
	file, err := conn.File()
	if err != nil {
		return fmt.Errorf("hand a connection over: %w", err)
	}
	defer file.Close()
	if err := unixsock.Send(door, binary.LittleEndian.AppendUint32(nil, uint32(len(first))), file); err != nil {
		return outboard.Errorf(outboard.Unreachable, "hand a connection over", "%w", err)
	}
	_, err = door.Write(first)
	if err != nil {
		return outboard.Errorf(outboard.Unreachable, "hand a connection over", "%w", err)
	}
	return conn.Close()
}

// client speaks with a tenant's process. It waits until that is ready.
func (h *Host) client(name string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := h.Config(ctx, name)
		if err != nil {
			return nil, err
		}
		return unixsock.Dial(ctx, c.ControlSocket())
	}, DisableKeepAlives: true}}
}

// address is a path of the local API of a tenant's process.
func address(path string) string { return "http://tenant" + path }

// Proxy forwards a request for the local API to a tenant's process.
func (h *Host) Proxy(name string, failed func(http.ResponseWriter, error)) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     h.client(name).Transport,
		FlushInterval: -1, // logs are followed
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "tenant" },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				failed(w, unreachable(name, err))
			}
		},
	}
}

// unreachable is an error on the way to a process. What Config says of it is said once.
func unreachable(name string, err error) error {
	if known, ok := errors.AsType[*outboard.Error](err); ok {
		return known
	}
	return outboard.Errorf(outboard.Unreachable, "the process of tenant "+name, "%w", err)
}

// Get asks a tenant's process for JSON.
func (h *Host) Get(ctx context.Context, name, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address(path), nil)
	if err != nil {
		return err
	}
	response, err := h.client(name).Do(request)
	if err != nil {
		return unreachable(name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var failure client.Failure
		if err := json.NewDecoder(response.Body).Decode(&failure); err != nil {
			return outboard.Errorf(outboard.Protocol, "the process of tenant "+name, "status %s", response.Status)
		}
		return failure.Err()
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// Tell tells all processes, those that are started later too, which nodes there are.
func (h *Host) Tell(ctx context.Context, members []outboard.Node) {
	h.mu.Lock()
	h.members = members
	h.mu.Unlock()
	for _, name := range h.Tenants() {
		h.running.Go(func() { h.tell(ctx, name) })
	}
}

// known are the nodes that were told of last.
func (h *Host) known() []outboard.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.members
}

// tellLimit is how long a process may take to hear something.
const tellLimit = 10 * time.Second

func (h *Host) tell(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	text, err := json.Marshal(h.known())
	if err != nil {
		return
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, address("/v1/members"), bytes.NewReader(text))
	if err != nil {
		return
	}
	response, err := h.client(name).Do(request)
	if err != nil {
		h.log.Debug("a tenant's process was not told which nodes there are", "tenant", name, "error", err)
		return
	}
	_ = response.Body.Close()
}
