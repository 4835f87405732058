package main

import "strings"

// A shortfall is the reason, as far as known, that rows whose names have all these words fall
// short.
type shortfall struct {
	words  []string
	reason string
}

var shortfalls = []shortfall{
	{[]string{"256 KiB", "borrowed"}, "Four copies are left, most of them from one processor's cache to another's."},
	{[]string{"256 KiB", "managed"}, "Handler and caller get copies, as with gRPC: both programs allocate 256 KiB for each call, and at Go's smallest heap, 4 MiB, every tenth " +
		"call starts a collection, which takes 1.3 ms beside the calls on the same two processors. With GOGC=400 the ratio is 0.08. Programs that borrow the bytes instead have rows of their own."},
	{[]string{"web shop"}, "Five calls one after the other are 20 hops from process to process, and with 8 requests in flight 34 times a thread goes " +
		"to sleep for each: looking, waking and sleeping is nearly half of the processor time, and the cores are full."},
	{[]string{"TLS, 64 B, 1 in flight"}, "At the goal within the spread: each call hands over between goroutines twice on each side."},
	{[]string{"beside a transfer", "p99, fabric"}, "Two cores are full while the transfer runs: a small call that waits for long waits until its " +
		"processes get one, or for the collector; within the fabric it waits for one frame. " + slowCopies},
	{[]string{"beside a transfer", "p99, shared memory"}, "Within the fabric a small call waits for one piece of a message. " + slowCopies},
}

const slowCopies = "Go's collector wants each goroutine to stop for a moment, and signals the one that copies 16 MiB for protobuf every 10 us, since it can't stop within a copy. " +
	"Where the copy goes to new memory each page of it is a page fault, each fault ends with the next signal, and so the copy gets on by a page for each: 60 to 190 ms for what " +
	"takes 4 otherwise, in which the process does nothing else (seen in a profile; grpc-go's processes do the same)."

// reasonFor returns why a row misses its goal, "" if the reason is unknown.
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
