package pool

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

// A joined node has bounded numbers of tickets, parts of their selectors, grants and devices: every node
// keeps them decoded, and compares them for each lease.
func TestCountsOfAHostileNode(t *testing.T) {
	v := newTold(t)
	v.beat("b", "1")
	type raw struct {
		Holder   outboard.NodeID `json:"holder"`
		Boot     string          `json:"boot"`
		Selector string          `json:"selector"`
		Program  string          `json:"program"`
	}
	v.tell(queuePrefix+"b/parts", raw{"b", "1", strings.Repeat("name!~x,", 1000), ""})
	v.tell(queuePrefix+"b/long", raw{"b", "1", "name~" + strings.Repeat("x", 10<<10), ""})
	v.tell(queuePrefix+"b/program", raw{"b", "1", "", strings.Repeat("x", maxTicket)})
	v.tell(queuePrefix+"b/other", raw{"c", "1", "", ""})
	if n := len(v.waiting()); n != 0 {
		t.Errorf("%d tickets are waited for, want none", n)
	}
	if _, garbage := v.garbage(); len(garbage) != 4 {
		t.Errorf("%d tickets are garbage, want 4", len(garbage))
	}
	for i := range maxTickets + 10 {
		v.tell(fmt.Sprintf("%sb/%d", queuePrefix, i), raw{"b", "1", "memory>0", "p"})
	}
	if n := len(v.waiting()); n != maxTickets {
		t.Errorf("%d tickets are waited for, want %d", n, maxTickets)
	}
	if outboard.KindOf(checkCounts(v.view, "b", 0, 1)) != outboard.Exhausted || checkCounts(v.view, "c", 0, 1) != nil {
		t.Error("the limit of tickets is not the holder's")
	}
	for device := range 5 {
		var all []record
		for i := range maxGrants / 4 {
			all = append(all, record{Grant: outboard.Grant{Lease: outboard.LeaseID(fmt.Sprint(i)), Holder: "b", Boot: "1"}})
		}
		v.tell(fmt.Sprintf("%sd/%d/b", leasePrefix, device), all)
	}
	v.wantLeases(maxGrants, "five quarters of the limit")
	if outboard.KindOf(checkCounts(v.view, "b", 1, 0)) != outboard.Exhausted {
		t.Error("the holder may have more leases")
	}
	for device := range 5 {
		v.tell(fmt.Sprintf("%sd/%d/b", leasePrefix, device), []record{})
	}
	if err := checkCounts(v.view, "b", maxGrants, 0); err != nil {
		t.Errorf("after all leases were released: %v", err)
	}
	n := outboard.Node{ID: "b", Boot: "2"}
	for i := range maxDevices + 1 {
		n.Devices = append(n.Devices, outboard.Device{ID: outboard.DeviceID(fmt.Sprint("b/opencl/", i)), Node: "b"})
	}
	v.tell(nodePrefix+"b", n)
	if got, _ := v.node("b"); got.Boot == "2" {
		t.Errorf("a node has %d devices", len(got.Devices))
	}
}
