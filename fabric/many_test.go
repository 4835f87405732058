package fabric

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestManyAtOnce runs all interoperability cases at once on one connection, and
// leaves no goroutine behind.
func TestManyAtOnce(t *testing.T) {
	for name, p := range pairings() {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			t.Run("calls", func(t *testing.T) {
				conn := p.dial(t, registerInterop, sides{})
				var all sync.WaitGroup
				for range 4 {
					for _, do := range interopCases() {
						all.Go(func() { interopCase(t, conn, do) })
					}
				}
				all.Wait()
			})
			settle(t, before)
		})
	}
}

// settle waits until there are no more goroutines than before.
func settle(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			all := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, all[:runtime.Stack(all, true)])
		}
	}
}
