package framed

import "testing"

// With BothWays a stream that uses up its first window gets the largest one at once, as far as the
// connection's budget goes; without, it grows step by step.
func TestBothWaysGrantsTheLargestWindow(t *testing.T) {
	for name, c := range map[string]struct {
		bothWays bool
		budget   int
		want     int
	}{
		"both ways":         {true, 64 << 20, 8 << 20},
		"a smaller budget":  {true, 1 << 20, firstWindow + 1<<20},
		"as the link needs": {false, 64 << 20, secondWindow},
	} {
		w := receiveWindow{conn: &Conn{o: Options{BothWays: c.bothWays, Window: 8 << 20}, budget: c.budget}, size: firstWindow, consumed: firstWindow / 2}
		if credit := w.grant(); w.size != c.want || credit != firstWindow/2+c.want-firstWindow {
			t.Errorf("%s: a window of %d bytes, %d granted, want %d", name, w.size, credit, c.want)
		}
	}
}
