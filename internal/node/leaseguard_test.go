package node

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/lend"
)

// A session whose lease expired ends at once. One whose lease was given back has a moment to
// end by itself, as its holder wants it.
func TestLeaseGuard(t *testing.T) {
	begin := time.Unix(1000, 0)
	lease := outboard.Lease{Grant: outboard.Grant{Lease: "a", Expires: begin.Add(15 * time.Second)}}
	sessions := []*lend.Session{{Spec: lend.Spec{Lease: lease}, ID: "1"}}
	type look struct {
		after  time.Duration
		stands bool
		ends   int
	}
	for name, looks := range map[string][]look{
		"given back": {{0, true, 0}, {time.Second, true, 0}, {2 * time.Second, false, 0}, {3 * time.Second, false, 0}, {4 * time.Second, false, 1}, {5 * time.Second, false, 1}},
		"expired":    {{0, true, 0}, {15 * time.Second, true, 0}, {15 * time.Second, false, 1}},
		"unknown":    {{0, false, 1}},
		"renewed":    {{0, true, 0}, {time.Second, false, 0}, {2 * time.Second, true, 0}, {3 * time.Second, false, 0}, {4 * time.Second, false, 0}, {5 * time.Second, false, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var g leaseGuard
			for _, l := range looks {
				var standing []outboard.Lease
				if l.stands {
					standing = []outboard.Lease{lease}
				}
				if got := g.overdue(sessions, standing, begin.Add(l.after)); len(got) != l.ends {
					t.Errorf("after %v %d sessions end, want %d", l.after, len(got), l.ends)
				}
			}
			if g.overdue(nil, nil, begin); len(g.expire)+len(g.released) != 0 {
				t.Errorf("it remembers %v and %v", g.expire, g.released)
			}
		})
	}
}

// A lease of another node or device does not keep a session because it has the ID of the session's, nor
// does the session's own with another size, by which it would have more memory than it is granted.
func TestLeaseGuardTellsLeasesApart(t *testing.T) {
	now := time.Unix(1000, 0)
	lease := outboard.Lease{Device: "a/opencl/0", Grant: outboard.Grant{Lease: "l", Holder: "b", Memory: 1 << 30, Expires: now}}
	sessions := []*lend.Session{{Spec: lend.Spec{Lease: lease}, ID: "1"}}
	for name, change := range map[string]func(*outboard.Lease){
		"of another holder": func(l *outboard.Lease) { l.Holder = "c" },
		"of another device": func(l *outboard.Lease) { l.Device = "a/opencl/1" },
		"smaller":           func(l *outboard.Lease) { l.Memory = 1 },
		"shared":            func(l *outboard.Lease) { l.Exclusive = true },
	} {
		other := lease
		change(&other)
		var g leaseGuard
		if got := g.overdue(sessions, []outboard.Lease{other}, now); len(got) != 1 {
			t.Errorf("a lease that is %s: %d sessions end, want 1", name, len(got))
		}
		if got := g.overdue(sessions, []outboard.Lease{other, lease, other}, now); len(got) != 0 {
			t.Errorf("beside a lease that is %s: %d sessions end, want none", name, len(got))
		}
	}
}
