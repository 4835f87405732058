// Command hello is the handler of package hello as a function.
package main

import (
	"net/http"

	"github.com/outboard-run/outboard/bench/function/hello"
	"github.com/outboard-run/outboard/guest/go/web"
)

func init() {
	hello.Warm()
	web.Handle(http.HandlerFunc(hello.Handler))
}

func main() {}
