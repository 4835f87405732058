package worker

import (
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// openSession starts a session of a program on a host. The caller closes it.
func openSession(t *testing.T, h *lend.Host, program string) *lend.Session {
	t.Helper()
	s, err := h.Start(lend.Spec{
		Lease:  outboard.Lease{Grant: outboard.Grant{Lease: "lease", Holder: "dinghy", Program: program, Memory: 64 << 20, Weight: 1}},
		Device: outboard.Device{ID: "harbour/opencl/0", API: outboard.OpenCL},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// startSession also returns the program's end of the session's ring.
func startSession(t *testing.T, h *lend.Host, program string) (*lend.Session, *peer) {
	t.Helper()
	s := openSession(t, h, program)
	p := &peer{t: t, ring: s.Ring(), out: session.NewWriter(s.Ring(), s.Ring().Area())}
	var err error
	if p.in, err = session.NewReader(s.Ring(), s.Ring().Area()); err != nil {
		_ = s.Close()
		t.Fatal(err)
	}
	return s, p
}
