// Command hello is the handler of package hello as a function.
package main

import (
	"net/http"

	"github.com/outboard-run/outboard/bench/function/hello"
	"github.com/outboard-run/outboard/guest/go/web"
)

func init() {
	web.Handle(http.HandlerFunc(hello.Handler))
	web.Warm("POST /hello/orders/{id}", "/hello/orders/17", `{"course":"algebra","student":"s1","seats":2}`)
}

func main() {}
