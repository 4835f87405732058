package router

import (
	"strings"
	"testing"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// TestLongNames counts calls of methods and peers whose names are as long as metadata may be.
func TestLongNames(t *testing.T) {
	s := newStats(10, 10)
	for _, long := range []string{strings.Repeat("a", 100<<10), strings.Repeat("b", 100<<10)} {
		s.methods.of("/shop.Orders/" + long)
		s.peers.of(long)
	}
	s.methods.of("/shop.Orders/Place")
	if all := s.methods.all(); len(all) != 2 || all[otherName] == nil || all["/shop.Orders/Place"] == nil {
		t.Errorf("%d methods are counted", len(all))
	}
	if all := s.peers.all(); len(all) != 1 || all[otherName] == nil {
		t.Errorf("%d peers are counted", len(all))
	}
}

// TestClockSetBack counts calls, and takes load reports, before and after the clock is set back.
func TestClockSetBack(t *testing.T) {
	report, err := proto.Marshal(&orca.OrcaLoadReport{ApplicationUtilization: 0.7})
	if err != nil {
		t.Fatal(err)
	}
	m, e := newMethod("/shop.Orders/Place"), &endpoint{}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for range 1000 {
		now = now.Add(10 * time.Millisecond)
		m.record(codes.OK, time.Second, now)
	}
	if r := m.row(now); r.Rate < 90 || r.Rate > 110 {
		t.Errorf("%.1f calls a second, want 100", r.Rate)
	}
	if e.reportOf(metadata.MD{loadKey: {string(report)}}, now) == nil {
		t.Error("the first report is not taken")
	}
	now = now.Add(-time.Hour)
	for range 10 {
		now = now.Add(time.Second)
		m.record(codes.OK, time.Millisecond, now)
	}
	if r := m.row(now); r.Rate < 0.9 || r.Rate > 1.3 || r.P99 > 2*time.Millisecond {
		t.Errorf("%.1f calls a second, 99%% within %v, want 1, within a millisecond", r.Rate, r.P99)
	}
	if e.reportOf(metadata.MD{loadKey: {string(report)}}, now) == nil {
		t.Error("no report is taken after the clock was set back")
	}
}
