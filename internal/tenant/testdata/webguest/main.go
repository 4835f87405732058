// Command webguest is a function that was written as a handler of net/http.
package main

import (
	"fmt"
	"net/http"

	"github.com/outboard-run/outboard/guest/go/web"
)

func init() {
	web.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
	}))
}

func main() {}
