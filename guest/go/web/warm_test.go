package web_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/web"
)

// Warm calls the handler once, with the parameters of the path, and what it answers is
// gone.
func TestWarm(t *testing.T) {
	for name, test := range map[string]struct{ route, target, body, want string }{
		"a parameter":    {"POST /orders/{id}", "/orders/17?full=1", "two seats", "POST 17 1 two seats"},
		"no method":      {"/orders/{id}", "/orders/17", "", "GET 17  "},
		"several":        {"PUT /{shop}/{id...}", "/boats/a/b", "x", "PUT a/b  x"},
		"another target": {"POST /orders/{id}", "/boats", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			web.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = append(got, fmt.Sprintf("%s %s %s %s", r.Method, r.PathValue("id"), r.FormValue("full"), body))
				w.WriteHeader(http.StatusTeapot)
			}))
			web.Warm(test.route, test.target, test.body)
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A handler answers as if it had not been warmed.
func TestWarmLeavesNothing(t *testing.T) {
	web.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	web.Warm("POST /", "/", "warm")
	if b, err := guest.Call([]byte("cold")); err != nil || string(b) != "cold" {
		t.Errorf("%q, %v", b, err)
	}
}

// What can't be read is told where it is written.
func TestWarmRefuses(t *testing.T) {
	web.Handle(http.NotFoundHandler())
	for name, warm := range map[string]func(){
		"target": func() { web.Warm("GET /", "no path", "") },
		"route":  func() { web.Warm("GET /{id", "/17", "") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it says nothing")
				}
			}()
			warm()
		})
	}
}
