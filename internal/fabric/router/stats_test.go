package router

import (
	"strings"
	"testing"
)

// TestLongNames counts calls of methods and peers whose names are as long as metadata may be.
func TestLongNames(t *testing.T) {
	s := newStats(10, 10)
	for _, long := range []string{strings.Repeat("a", 100<<10), strings.Repeat("b", 100<<10)} {
		s.methods.of("/shop.Orders/" + long)
		s.peers.of(long)
	}
	s.methods.of("/shop.Orders/Place")
	if all := s.methods.all(); len(all) != 2 || all[otherName] == nil || all["/shop.Orders/Place"] == nil {
		t.Errorf("%d methods are counted", len(all))
	}
	if all := s.peers.all(); len(all) != 1 || all[otherName] == nil {
		t.Errorf("%d peers are counted", len(all))
	}
}
