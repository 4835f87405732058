package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/internal/gateway"
)

// invoke is an Invoker made of a function.
type invoke func(ctx context.Context, c gateway.Call) (gateway.Answer, error)

func (f invoke) Invoke(ctx context.Context, c gateway.Call) (gateway.Answer, error) { return f(ctx, c) }

// text answers with bytes.
func text(s string) gateway.Answer { return gateway.Answer{Body: []byte(s)} }

// newGateway makes a gateway with apps.
func newGateway(t testing.TB, opts gateway.Options, apps ...gateway.App) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SetApps(apps); err != nil {
		t.Fatal(err)
	}
	return g
}

// start runs a gateway until the test ends or stop is called.
func start(t testing.TB, g *gateway.Gateway) (stop func()) {
	t.Helper()
	stop = run(t, g)
	t.Cleanup(stop)
	return stop
}

// run runs a gateway until stop is called.
func run(t testing.TB, g *gateway.Gateway) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := g.Run(ctx, func() { close(ready) }); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	<-ready
	return sync.OnceFunc(func() { cancel(); <-ended })
}

// serve hands all connections of a listener to the gateway.
func serve(t testing.TB, g *gateway.Gateway) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { g.ServeConn(conn, nil) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// answer is what came back of a request.
type answer struct {
	StatusCode int
	Header     http.Header
	text       string
}

// ask makes one request to a gateway without a connection.
func ask(g http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// read takes a whole response.
func read(t testing.TB, r *http.Response) answer {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{r.StatusCode, r.Header, string(b)}
}

func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

func post(path, body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
}
