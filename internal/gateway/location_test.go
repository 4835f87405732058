package gateway_test

import (
	"context"
	"testing"

	"github.com/outboard-run/outboard/internal/gateway"
)

// A Location that is a path leads to the app, whose name the function does not see in its paths.
func TestLocations(t *testing.T) {
	for name, c := range map[string]struct{ location, want string }{
		"path":         {"/there?x=/y#z", "/a/there?x=/y#z"},
		"root":         {"/", "/a/"},
		"like the app": {"/above", "/a/above"},
		"backslash":    {`/\example.org`, `/a/\example.org`},
		"app":          {"/a", "/a"},
		"in the app":   {"/a/there", "/a/there"},
		"query":        {"/a?x", "/a?x"},
		"fragment":     {"/a#x", "/a#x"},
		"relative":     {"there", "there"},
		"parent":       {"../there", "../there"},
		"host":         {"//example.org/there", "//example.org/there"},
		"URL":          {"https://example.org/there", "https://example.org/there"},
		"empty":        {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			message := "HTTP/1.1 302 Found\r\nX-One: /x\r\nlocation: " + c.location + "\r\nContent-Length: 0\r\n\r\n"
			whole := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
				return gateway.Answer{Body: []byte(message), Message: true}, nil
			})
			for form, i := range map[string]invoke{"whole": whole, "parts": inParts(message)} {
				got, _, err := overRoute(t, i, form == "parts", "GET /a/here HTTP/1.1\r\nHost: x\r\n\r\n")
				if location := got.Header.Get("Location"); location != c.want || got.Header.Get("X-One") != "/x" || err != nil {
					t.Errorf("%s: got %q, want %q (%v, %v)", form, location, c.want, got.Header, err)
				}
			}
		})
	}
}
