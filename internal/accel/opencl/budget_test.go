package opencl

import "testing"

// TestRefusedIsNeverCounted: a reservation that does not fit takes nothing from one
// that does, which another goroutine makes meanwhile.
func TestRefusedIsNeverCounted(t *testing.T) {
	b := budget{limit: 100}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				b.reserve(101)
			}
		}
	}()
	for range 200_000 {
		if !b.reserve(1) {
			t.Error("1 of 100 bytes was refused while 101 were asked for")
			break
		}
		b.release(1)
	}
	close(stop)
	<-stopped
}
