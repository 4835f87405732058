package opencl

import (
	"fmt"
	"testing"
)

// What a driver wrote to standard error reaches the client line by line and in order, after the
// snapshot even where it came before; a client that does not read holds up nobody.
func TestDiagnostics(t *testing.T) {
	c := dial(t, Options{})
	for i := range 10 {
		c.worker.ReportDiagnostic(fmt.Sprintf("warning %d", i))
	}
	c.await(opSnapshot)
	for i := range 10 {
		var a argsDiagnostic
		if err := a.decode(c.await(opDiagnostic).body); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("warning %d\n", i); string(a.Text) != want {
			t.Errorf("got %q, want %q", a.Text, want)
		}
	}
	w := &Worker{diagnostics: diagnostics{lines: make(chan string, maxDiagnostics)}} // whose forwarder does not run
	for range 2 * maxDiagnostics {
		w.ReportDiagnostic("once more")
	}
}
