package outgoing_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/engine/enginetest"
	"github.com/outboard-run/outboard/internal/workflow/outgoing"
)

// internet is a server that answers for all hosts, over TLS.
type internet struct {
	server *httptest.Server
	roots  *x509.CertPool
	got    chan *http.Request
}

// publicAddress is that of all hosts.
var publicAddress = netip.MustParseAddr("93.184.215.14")

func openInternet(t *testing.T, hosts ...string) *internet {
	t.Helper()
	n := &internet{got: make(chan *http.Request, 100), roots: x509.NewCertPool()}
	n.server = httptest.NewUnstartedServer(http.HandlerFunc(n.serve))
	n.server.TLS = &tls.Config{Certificates: []tls.Certificate{n.certificate(t, hosts)}}
	n.server.StartTLS()
	t.Cleanup(n.server.Close)
	return n
}

// certificate returns one for the hosts, which the roots verify.
func (n *internet) certificate(t *testing.T, hosts []string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: hosts, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	n.roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// client returns an app's client, for which every host has the public address.
func (n *internet) client(t *testing.T, hosts ...string) *egress.Client {
	t.Helper()
	e, err := egress.New(egress.Options{
		Roots:  n.roots,
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{publicAddress}, nil },
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if to.Addr() != publicAddress {
				return nil, errors.New("no such machine: " + to.String())
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", n.server.Listener.Addr().String())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var allowed []egress.Host
	for _, text := range hosts {
		h, err := egress.ParseHost(text)
		if err != nil {
			t.Fatal(err)
		}
		allowed = append(allowed, h)
	}
	c := e.Client("app", allowed)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (n *internet) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case n.got <- r:
	default:
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET petstore.swagger.io/v2/pet/findByStatus", func(w http.ResponseWriter, r *http.Request) {
		reply(w, []any{pet(7, r.FormValue("status")), pet(8, r.FormValue("status"))})
	})
	mux.HandleFunc("GET petstore.swagger.io/v2/pet/{id}", func(w http.ResponseWriter, r *http.Request) {
		reply(w, pet(json.Number(r.PathValue("id")), "available"))
	})
	mux.HandleFunc("GET petstore.swagger.io/v2/swagger.json", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, json.RawMessage(petstore))
	})
	mux.HandleFunc("GET httpbin.org/basic-auth/{user}/{password}", func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != r.PathValue("user") || password != r.PathValue("password") {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reply(w, map[string]any{"body": string(body), "type": r.Header.Get("Content-Type"), "query": r.URL.RawQuery, "key": r.Header.Get("Idempotency-Key"), "auth": r.Header.Get("Authorization")})
	})
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	mux.HandleFunc("/lost", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/text", http.StatusFound) })
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for range outgoing.MaxResponse>>20 + 1 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/never", func(http.ResponseWriter, *http.Request) {
		<-r.Context().Done()
		// An answer could overtake the end of the client's connection.
		panic(http.ErrAbortHandler)
	})
	mux.ServeHTTP(w, r)
}

func pet(id any, status string) map[string]any {
	return map[string]any{"id": id, "name": "Milou", "status": status}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// petstore is what the scenarios use of the document of that name.
const petstore = `{"swagger": "2.0", "host": "petstore.swagger.io", "basePath": "/v2", "schemes": ["https", "http"],
	"paths": {
		"/pet/findByStatus": {"get": {"operationId": "findPetsByStatus", "parameters": [
			{"name": "status", "in": "query", "required": true, "type": "array", "collectionFormat": "multi"}]}},
		"/pet/{petId}": {"get": {"operationId": "getPetById", "parameters": [
			{"name": "petId", "in": "path", "required": true, "type": "integer"}]}}}}`

// services joins a caller to an engine.
type services struct{ caller *outgoing.Caller }

// CallService implements engine.Services.
func (s services) CallService(ctx context.Context, c engine.ServiceCall) (engine.Outcome, error) {
	result, err := s.caller.Call(ctx, outgoing.Request{Protocol: c.Protocol, With: c.With, Key: c.Key(), Timeout: c.Timeout})
	return engine.Outcome{Body: result.Body, Type: result.Type}, err
}

func noSecret(name string) ([]byte, error) { return nil, fmt.Errorf("no secret %s", name) }

// execute runs a workflow of a scenario.
func execute(t *testing.T, definition, input string) *execution {
	t.Helper()
	hosts := []string{"petstore.swagger.io", "httpbin.org"}
	client := openInternet(t, hosts...).client(t, hosts...)
	w, err := dsl.Parse("scenario.yaml", []byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	pool := enginetest.New()
	pool.Deploy("app", "flow", w)
	opts := pool.Node("harbour").Options(enginetest.Functions{})
	opts.Services = services{outgoing.New(client, noSecret)}
	e, err := engine.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	id, err := e.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow", Input: []byte(input)})
	if err != nil {
		t.Fatal(err)
	}
	r := &execution{}
	if r.Result, err = e.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	described, err := e.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range described.Steps {
		r.order = append(r.order, s.Name)
	}
	return r
}

// recorder makes responses.
type recorder struct{ header http.Header }

func (r *recorder) response(body string) *http.Response {
	w := httptest.NewRecorder()
	maps.Copy(w.Header(), r.header)
	_, _ = w.WriteString(body)
	return w.Result()
}
