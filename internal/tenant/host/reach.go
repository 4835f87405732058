package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Hand gives a tenant's process a connection, of which first was read already. The
// connection is closed here in any case.
func (h *Host) Hand(ctx context.Context, name string, conn *net.TCPConn, first []byte) error {
	defer conn.Close()
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
		return fmt.Errorf("hand a connection over: %w", err)
	}
	_, err = door.Write(first)
	return err
}

// Proxy forwards a request for the local API to a tenant's process.
func (h *Host) Proxy(name string, failed func(http.ResponseWriter, error)) http.Handler {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := h.Config(ctx, name)
		if err != nil {
			return nil, err
		}
		return unixsock.Dial(ctx, c.ControlSocket())
	}, DisableKeepAlives: true}
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // logs are followed
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "tenant" },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				failed(w, outboard.Errorf(outboard.Unreachable, "the process of tenant "+name, "%w", err))
			}
		},
	}
}
