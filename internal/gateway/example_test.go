package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/outboard-run/outboard/internal/gateway"
)

// An app with one route, whose function greets.
func ExampleGateway() {
	greet := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		name, _ := c.Meta("name")
		return gateway.Answer{Body: []byte("hello " + name)}, nil
	})
	g, err := gateway.New(gateway.Options{Invoker: greet})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = g.SetApps([]gateway.App{{Name: "doors", Routes: []gateway.Route{
		{Path: "/greet/{name}", Methods: []string{"GET"}, Target: gateway.Target{Function: "greet"}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"/doors/greet/harbour", "/doors/leave"} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		text, _ := io.ReadAll(w.Body)
		fmt.Println(w.Code, string(text))
	}
	// Output:
	// 200 hello harbour
	// 404 {"title":"Not Found","status":404,"detail":"path \"/doors/leave\": the app doors has no such route"}
}
