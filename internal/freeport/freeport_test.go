package freeport

import (
	"fmt"
	"net"
	"testing"

	"github.com/outboard-run/outboard"
)

// The kernel gives none of the chosen ports to another socket.
func TestCandidates(t *testing.T) {
	for text, want := range map[string][2]int{
		"32768\t60999\n": {10_000, 32_767},
		"9000 63000":     {63_001, 65_535},
		"11000 20000":    {20_001, 65_535},
		"1024 65535":     {10_000, 65_535},
		"1 2":            {10_000, 65_535},
		"junk":           {10_000, 32_767},
		"":               {10_000, 32_767},
	} {
		low, count := candidates(text)
		if got := [2]int{low, low + count - 1}; got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// A port that is chosen can be listened on; one that is listened on at some address is not free.
func TestChoose(t *testing.T) {
	port, err := Choose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Probe(t.Context(), port); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("of a port in use: %v", err)
	}
}
