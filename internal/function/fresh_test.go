package function

import (
	"bytes"
	"reflect"
)

// tester is what testing and rapid have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkFresh compares what idle slots hold with the image: memory with what lies
// above it, and globals.
func checkFresh(t tester, f *Function) {
	t.Helper()
	for _, s := range f.idle {
		want, all := f.version.image.Bytes(), s.memory.space.Bytes()
		w := s.view.window
		if !bytes.Equal(all[:w.From], want[:w.From]) || !bytes.Equal(all[w.To:len(want)], want[w.To:]) {
			t.Errorf("memory differs from the image")
		}
		checkWindow(t, s)
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
		kept := s.call
		kept.slot, kept.imports.handles = nil, nil // of no length, but kept
		if !reflect.ValueOf(kept).IsZero() || len(s.call.imports.handles) != 0 || s.stdout.kept != nil || s.stderr.kept != nil {
			t.Errorf("the slot keeps something of a call: %+v", kept)
		}
	}
}

// checkWindow compares a window with the arena that it shows, and expects zero beyond.
func checkWindow(t tester, s *slot) {
	t.Helper()
	window := s.memory.space.Bytes()[s.view.window.From:s.view.window.To]
	if a := s.view.arena; a != nil && a.holders > 0 {
		shown := s.view.visible()
		if !bytes.Equal(window[:shown], a.Bytes()[:shown]) {
			t.Errorf("the window differs from the arena that it shows")
		}
		window = window[shown:]
	}
	if !isZero(window) || s.view.named != 0 {
		t.Errorf("the window shows something beyond the arena: %d named ones", s.view.named)
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
