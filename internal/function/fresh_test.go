package function

import (
	"bytes"
	"testing"
)

// checkFresh compares what idle slots hold with the image: memory with what lies
// above it, and globals.
func checkFresh(t testing.TB, f *Function) {
	t.Helper()
	for _, s := range f.idle {
		want, all := f.version.image.Bytes(), s.memory.space.Bytes()
		if !bytes.Equal(all[:len(want)], want) {
			t.Errorf("memory differs from the image")
		}
		if above := all[len(want):]; !isZero(above) {
			t.Errorf("memory above the image is not zero")
		}
		if got := s.memory.size; got != len(want) || len(want) > 0 && int(s.instance.Memory().Size()) != got {
			t.Errorf("memory of %d bytes, the image has %d", got, len(want))
		}
		for i, g := range s.globals {
			if g.Get() != f.version.globals[i] {
				t.Errorf("global %s is %d, was %d", f.version.code.Globals[i].Name, g.Get(), f.version.globals[i])
			}
		}
		if s.request != nil || s.response != nil || s.stdout.kept != nil || s.stderr.kept != nil {
			t.Errorf("the slot keeps something of a call")
		}
	}
}

func isZero(b []byte) bool {
	zero := make([]byte, 1<<16)
	for len(b) > 0 {
		n := min(len(b), len(zero))
		if !bytes.Equal(b[:n], zero[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}
