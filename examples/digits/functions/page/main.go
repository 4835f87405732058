// Command page serves the page of the digits example, on which users draw digits.
package main

import (
	_ "embed"
	"net/http"

	"github.com/outboard-run/outboard/guest/go/web"
)

//go:embed digits.html
var page []byte

func init() {
	web.Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	}))
}

func main() {}
