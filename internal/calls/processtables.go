package calls

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboard-run/outboard/client"
)

func (p *process) handler(plane *Plane) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { say(w, plane.Table()) })
	mux.HandleFunc("GET /policies", func(w http.ResponseWriter, _ *http.Request) { say(w, plane.Policies()) })
	mux.HandleFunc("POST /parse", func(w http.ResponseWriter, r *http.Request) {
		var f client.PolicyFile
		err := json.NewDecoder(r.Body).Decode(&f)
		if err == nil {
			_, err = plane.Parse(f.Name, []byte(f.Text))
		}
		answer := parsed{}
		if err != nil {
			answer.Error = err.Error()
		}
		say(w, answer)
	})
	return mux
}

// parsed is what a text of policies comes to.
type parsed struct {
	Error string `json:"error,omitempty"`
}

func say(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the node hung up
}

// serveHTTP serves the one request of a connection.
func (p *process) serveHTTP(m *message) {
	nc, err := connOf(m.file())
	if err != nil {
		p.log.Warn("a request was not passed", "error", err)
		return
	}
	l := &oneConn{conn: nc, done: make(chan struct{})}
	s := &http.Server{
		Handler: p.tables, ReadHeaderTimeout: greetLimit,
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

// oneConn is a listener that accepts one connection, and then waits for its end.
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
