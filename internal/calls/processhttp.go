package calls

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/ipc"
)

// handler serves the tables, metrics and checks that the node requests over HTTP.
func (p *process) handler(plane *Plane) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, plane.Table()) })
	mux.HandleFunc("GET /policies", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, plane.Policies()) })
	mux.HandleFunc("POST /parse", func(w http.ResponseWriter, r *http.Request) {
		var f client.PolicyFile
		err := json.NewDecoder(r.Body).Decode(&f)
		if err == nil {
			_, err = plane.Parse(f.Name, []byte(f.Text))
		}
		result := parseResult{}
		if err != nil {
			result.Error = err.Error()
		}
		writeJSON(w, result)
	})
	return mux
}

// A parseResult is the error of a text of policies, or empty.
type parseResult struct {
	Error string `json:"error,omitempty"`
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the node hung up
}

// serveHTTP serves the one request of a connection.
func (p *process) serveHTTP(f *os.File) {
	nc, err := ipc.NetConn(f)
	if err != nil {
		p.log.Warn("a request was not passed", "error", err)
		return
	}
	l := &oneConn{conn: nc, done: make(chan struct{})}
	s := &http.Server{
		Handler: p.tables, ReadHeaderTimeout: handshakeLimit,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				l.end()
			}
		},
	}
	s.SetKeepAlivesEnabled(false)
	defer context.AfterFunc(p.life, func() { _ = s.Close(); l.end() })()
	_ = s.Serve(l) // it ends with the connection
}

// A oneConn is a listener that accepts one connection, and then blocks until its end.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if nc := l.conn; nc != nil {
		l.conn = nil
		return nc, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) end() { l.once.Do(func() { close(l.done) }) }

// Close implements net.Listener.
func (l *oneConn) Close() error {
	l.end()
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
