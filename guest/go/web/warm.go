package web

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
)

// Warm calls the handler that Handle registered with a made-up request, and discards the response.
// It belongs into an init function, after Handle:
//
//	web.Warm("POST /orders/{id}", "/orders/17", `{"course": "algebra"}`)
//
// The lazy initialisation of packages is then part of the memory with which each request begins: a
// handler that reads and writes a few fields of JSON takes a quarter less time, even one whose
// types encoding/json has analysed before.
//
// The route is one of the manifest's, with or without the app's name: it names the parameters of
// the path. The handler runs as for a request, so it must not leave values in variables that a
// request must not see, and it can't import resources yet. Its response is ignored. An invalid
// route or target panics, so that the deployment fails with the reason.
func Warm(route, target, body string) {
	guest.Warm(func() { rehearse(registered, route, target, body) })
}

func rehearse(h http.Handler, route, target, body string) {
	method, _, ok := strings.Cut(route, " ")
	if !ok {
		method = http.MethodGet
	}
	x := newExchange()
	r, err := readRequest([]byte(method+" "+target+" HTTP/1.1\r\n"+usual+strconv.Itoa(len(body))+"\r\n\r\n"+body), "", x)
	if err != nil {
		panic(errors.Join(errors.New("web.Warm: "+method+" "+target), err)) //nolint:forbidigo // init can't return an error
	}
	mux := http.NewServeMux()
	mux.Handle(route, h)
	w := &x.response
	w.head = r.Method == http.MethodHead
	mux.ServeHTTP(w, r)
	_ = w.message()
}

// usual are the header fields of most requests.
const usual = "Host: localhost\r\nUser-Agent: outboard\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n" +
	"Content-Type: application/json\r\nContent-Length: "

// ordinary handles a request and a response as most handlers do.
func ordinary(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, r.PathValue("id"))
}
