package pool

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// told is a view that is told changes by hand, on a clock that jumps.
type told struct {
	t *testing.T
	*view
	rev uint64
}

func newTold(t *testing.T) *told {
	t.Helper()
	ca, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id, err := ca.NewIdentity("self", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Identity: id, Self: outboard.Node{Boot: "1"}, Logger: slog.New(slog.DiscardHandler)}
	opts.setDefaults()
	return &told{t: t, view: newView(opts)}
}

func (v *told) tell(key string, value any) {
	v.t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		v.t.Fatal(err)
	}
	v.rev++
	v.apply(state.Change{Entries: []state.Entry{{Key: key, Value: text, Revision: v.rev}}, Seq: v.rev})
}

func (v *told) beat(id outboard.NodeID, boot string) {
	v.t.Helper()
	v.tell(nodePrefix+string(id), outboard.Node{ID: id, Boot: boot})
}

func (v *told) grant(expires time.Time) {
	v.t.Helper()
	v.tell(leasePrefix+"d/b", []record{{Grant: outboard.Grant{Lease: "l", Holder: "b", Boot: "1", Expires: expires}}})
}

func (v *told) wantLeases(want int, why string) {
	v.t.Helper()
	if got := len(v.leases()); got != want {
		v.t.Errorf("%s: %d leases, want %d", why, got, want)
	}
}

func TestViewVoidsAnEarlierBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTold(t)
		v.beat("b", "1")
		v.grant(time.Now())
		v.wantLeases(1, "granted")
		v.beat("b", "2")
		v.wantLeases(0, "the holder has started again")
	})
}

// A node whose clock differs is reported, until its clock is set.
func TestViewComparesClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTold(t)
		p := &Pool{leaser: leaser{view: v.view, log: slog.New(slog.DiscardHandler)}}
		beat := func(id outboard.NodeID, ahead time.Duration) {
			v.tell(nodePrefix+string(id), nodeRecord{Node: outboard.Node{ID: id, Boot: "1"}, Clock: time.Now().Add(ahead).Round(0)})
		}
		want := func(want ...client.ClockOffset) {
			t.Helper()
			if diff := cmp.Diff(want, ClockOffsets(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		beat("self", 0)
		v.beat("earlier", "1") // of a version that does not write its clock
		beat("near", -50*time.Second)
		want()
		beat("ahead", time.Hour)
		beat("behind", -time.Hour)
		want(client.ClockOffset{Node: "ahead", Ahead: client.Duration(time.Hour)}, client.ClockOffset{Node: "behind", Ahead: client.Duration(-time.Hour)})
		beat("ahead", 0)
		beat("behind", 0)
		want()
	})
}

// A holder that is silent keeps its lease for as long as the lease lives, though it is not
// listed meanwhile: a suspended laptop is no dead one.
func TestViewVoidsAGoneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTold(t)
		v.beat("b", "1")
		v.grant(time.Now())
		for range 7 {
			time.Sleep(2 * time.Second)
			v.beat("self", "1")
			v.wantLeases(1, "14 s without a heartbeat at most")
		}
		time.Sleep(2 * time.Second)
		v.beat("self", "1")
		v.wantLeases(0, "16 s without a heartbeat")
	})
}

// The claims of a holder whose heartbeats are late are checked against its last record.
func TestViewHasTheRecordOfASilentHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTold(t)
		v.beat("b", "1")
		for range 4 {
			time.Sleep(2 * time.Second)
			v.beat("self", "1")
		}
		if _, listed := v.node("b"); listed {
			t.Error("a node without a heartbeat for 8 s is listed")
		}
		if b, ok := lastRecord(v.view, "b"); !ok || b.ID != "b" {
			t.Errorf("the last record of a silent node: %v, %v", b.ID, ok)
		}
	})
}

// Expiry is by the reader's clock since the last renewal, whatever the holder's says.
func TestViewExpiresLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTold(t)
		wrong := time.Now().Add(-time.Hour)
		for i := range 30 {
			time.Sleep(2 * time.Second)
			v.beat("b", "1")
			if i%5 == 0 && i < 20 {
				v.grant(wrong.Add(time.Duration(i) * time.Second))
			}
			want := 1
			if i > 22 {
				want = 0
			}
			v.wantLeases(want, "renewed every 10 s until the 30th second")
		}
	})
}

// While the table is silent nobody is taken for dead, and afterwards everybody
// has the whole time to be heard of.
func TestViewStandsStillInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTold(t)
		v.beat("b", "1")
		v.grant(time.Now())
		time.Sleep(time.Hour)
		v.wantLeases(1, "silence")
		v.beat("self", "1")
		v.wantLeases(1, "the table speaks again")
		for range 8 {
			time.Sleep(2 * time.Second)
			v.beat("self", "1")
		}
		v.wantLeases(0, "the holder does not")
	})
}

// A joined node writes times that can be read and not be written again, and figures that no probe
// measures: the lists of this node do not have them, and can be written.
func TestFiguresOfHostileNodes(t *testing.T) {
	const never = `"2026-01-01T00:00:00+24:00"`
	v := newTold(t)
	v.beat("b", "1")
	v.tell(linkPrefix+"b", []client.Link{{To: "self", RTT: time.Millisecond, Measured: time.Now()}})
	v.tell(nodePrefix+"c", json.RawMessage(`{"id":"c","boot":"1","started":`+never+`}`))
	v.tell(leasePrefix+"d/b", json.RawMessage(`[{"lease":"l","holder":"b","boot":"1","expires":`+never+`}]`))
	for _, figure := range []string{
		`"measured":` + never, `"rtt_ns":-1`, `"rtt_spread_ns":9e18`, `"min_rtt_ns":-1`, `"forward_bytes_per_s":1e300`, `"backward_bytes_per_s":-1`,
		`"forward_spread_bytes_per_s":-1`, `"loss":2`, `"samples":-1`, `"to":"` + strings.Repeat("x", 1000) + `"`,
	} {
		v.tell(linkPrefix+"b", json.RawMessage(`[{"to":"self",`+figure+`}]`))
		links := v.links["b"]
		if len(links) != 1 || links[0].RTT != time.Millisecond {
			t.Errorf("%.50s: %+v", figure, links)
		}
	}
	for what, list := range map[string]any{"nodes": v.nodes(), "leases": v.leases(), "links": v.links} {
		if text, err := json.Marshal(list); err != nil || strings.Contains(string(text), "+24:00") {
			t.Errorf("%s: %s, %v", what, text, err)
		}
	}
	v.wantLeases(0, "a lease until a time that is none")
}
