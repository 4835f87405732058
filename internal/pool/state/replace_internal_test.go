package state

import (
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// A voter that was killed is silent at once, and offline for the servers minutes later. Its absence
// begins with its silence.
func TestSilentVotersAreAbsent(t *testing.T) {
	t.Parallel()
	voters := []member{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	r := &replacer{after: 30 * time.Second, absent: make(map[string]time.Time)}
	meta := map[string]*natsserver.PeerInfo{"a": {Active: time.Nanosecond}, "b": {Active: time.Second}, "c": {Active: time.Second}}
	start := time.Now()
	lost := func(after time.Duration) string { return r.replaceable(voters, voters, meta, start.Add(after)) }
	if got := lost(0); got != "" || len(r.absent) != 0 {
		t.Fatalf("%q is lost, %v are absent", got, r.absent)
	}
	meta["b"].Active = absentAfter + time.Second
	if got := lost(absentAfter + time.Second); got != "" {
		t.Errorf("%q is lost at once", got)
	}
	if got := lost(absentAfter + time.Second + r.after); got != "b" {
		t.Errorf("%q is lost, want b", got)
	}
	meta["b"].Active, meta["b"].Offline = 0, false // it led the group, and has not answered the next leader
	if got := lost(absentAfter + time.Second + r.after); got != "b" {
		t.Errorf("%q is lost, want b", got)
	}
	meta["b"].Active = time.Second
	if got := lost(time.Minute); got != "" || len(r.absent) != 0 {
		t.Errorf("b is back: %q is lost, %v are absent", got, r.absent)
	}
}
