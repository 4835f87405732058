// Command greet is hello.Greet as a function: the template of `outboard new go`.
package main

import (
	"net/http"

	"github.com/outboard-run/outboard/bench/function/hello"
	"github.com/outboard-run/outboard/guest/go/web"
)

func init() {
	web.Handle(http.HandlerFunc(hello.Greet))
	web.Warm("POST /hello/people/{name}", "/hello/people/nobody", "")
}

func main() {}
