// Command gate is a function that waits in the host until it may continue, so that many of its
// calls are in progress at the same time.
package main

import (
	"strconv"

	guest "github.com/outboard-run/outboard/guest/go"
)

var seen = map[string]int{}

func init() {
	for i := range 1000 {
		seen["key"+strconv.Itoa(i)] = i
	}
	guest.Handle(wait)
}

func main() {}

func wait(key []byte) ([]byte, error) {
	seen[string(key)]++
	_, _ = guest.Meta("gate")
	return key, nil
}
