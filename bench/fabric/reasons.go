package main

import "strings"

// A shortfall is why rows whose names have all these words fall short, as far as is known.
type shortfall struct {
	words  []string
	reason string
}

var shortfalls = []shortfall{
	{[]string{"256 KiB", "managed"}, "A message is copied six times on its way there and back and unmarshalled into new memory at three places; " +
		"of each process's profile about half is Go's collector, which a heap of 4 MiB calls at every eighth message. Raw sockets, which copy " +
		"twice each way and allocate nothing, take a third of what shared memory without policies takes. It needs a heap that both programs map, and buffers that are used again."},
	{[]string{"web shop"}, "The processes take 0.36 to 0.49 of the peer's processor time; what is left is the time until sleeping processes wake: answers of " +
		"a chain come later than a waiter looks before it sleeps."},
	{[]string{"TLS, 64 B, 1 in flight"}, "At the goal within the spread: each call hands over between goroutines twice on each side."},
	{[]string{"beside a transfer", "p99, fabric"}, "Two cores are full while the transfer runs, and its own time is twice grpc-go's: long messages grow by doubling, since their " +
		"length is only a claim, and each time what is there is copied. The median of the small calls is little more than half of grpc-go's."},
}

// reasonFor is why a row falls short, "" where nobody knows.
func reasonFor(name string) string {
	for _, s := range shortfalls {
		all := true
		for _, word := range s.words {
			all = all && strings.Contains(name, word)
		}
		if all {
			return s.reason
		}
	}
	return ""
}
