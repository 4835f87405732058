package lend

import (
	"testing"

	"github.com/outboard-run/outboard"
)

// A holder that gives its lease the ID of another holder's, or of one of another device, has a limit of
// its own, and no other one by a second size of the same lease.
func TestLeasesWithOneID(t *testing.T) {
	h := &Host{
		opts: Options{MaxSessions: 10, MaxLeaseSessions: 1}, sessions: map[outboard.SessionID]*Session{},
		turns: map[outboard.DeviceID]*deviceTurns{}, leases: map[leaseKey]*leaseState{},
	}
	start := func(device outboard.DeviceID, holder outboard.NodeID, memory outboard.Bytes) (*leaseState, error) {
		spec := Spec{Device: outboard.Device{ID: device}, Lease: outboard.Lease{Device: device, Grant: outboard.Grant{Lease: "l", Holder: holder, Memory: memory}}}
		_, state, err := h.reserveSession(&spec)
		return state, err
	}
	states := map[*leaseState]bool{}
	for _, lease := range []struct {
		device outboard.DeviceID
		holder outboard.NodeID
		memory outboard.Bytes
	}{{"a/opencl/0", "victim", 1 << 30}, {"a/opencl/0", "intruder", 1}, {"a/opencl/1", "victim", 2}} {
		state, err := start(lease.device, lease.holder, lease.memory)
		if err != nil || states[state] || state.memory != lease.memory {
			t.Fatalf("%+v: %v, shares its state: %v, has %v", lease, err, states[state], state.memory)
		}
		states[state] = true
	}
	if _, err := start("a/opencl/0", "intruder", 1<<30); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("another size: %v, want Conflict", err)
	}
	if _, err := start("a/opencl/0", "victim", 1<<30); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("a second session: %v, want Exhausted", err)
	}
	one, other := outboard.Lease{Grant: outboard.Grant{Lease: "l", Holder: "b"}}, outboard.Lease{Grant: outboard.Grant{Lease: "l", Holder: "c"}}
	if accountOf(&one) == accountOf(&other) {
		t.Error("two holders' leases share an account of the device's time")
	}
}
