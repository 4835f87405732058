// Command guest is the function of victims and attackers: the path of a request, or the text of a
// message, selects the resource that it uses heavily.
package main

import (
	"bytes"
	"fmt"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(handle) }

func main() {}

// line is the line that an attacker prints.
var line = strings.Repeat("0123456789", 100)

func handle(request []byte) ([]byte, error) {
	switch event, _ := guest.Meta("ws.event"); event {
	case "message":
		return []byte(`{"send":[{"to":"self","text":"seen"}]}`), nil
	case "open", "close":
		return []byte(`{}`), nil
	}
	path, _ := guest.Meta("path")
	switch path {
	case "/spin":
		return spin(20_000_000), nil
	case "/log":
		for range 1000 {
			fmt.Println(line)
		}
	case "/memory":
		from, to := bytes.Repeat(request, 16<<20/max(len(request), 1)), make([]byte, 16<<20)
		for range 8 {
			copy(to, from)
		}
		return to[:8], nil
	}
	return spin(50_000), nil
}

// spin computes for a while.
func spin(turns int) []byte {
	x := uint32(1)
	for range turns {
		x = x*1664525 + 1013904223
	}
	return fmt.Append(nil, x)
}
