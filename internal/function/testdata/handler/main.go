// Command handler is a function for measurements: it does the work of a typical handler.
package main

import (
	"bytes"
	"fmt"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/internal/function/testdata/work"
)

var seen = map[string]int{}

func init() {
	for i := range 1000 {
		seen[fmt.Sprint("key", i)] = i
	}
	guest.Handle(handle)
}

func main() {}

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := bytes.Cut(request, []byte(" "))
	if string(verb) == "echo" {
		return rest, nil
	}
	return work.Handle(rest, seen)
}
