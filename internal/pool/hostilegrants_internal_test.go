package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

const contested = outboard.DeviceID("self/opencl/0")

// has writes a holder's grants of the contested device.
func (v *told) has(holder outboard.NodeID, records ...record) {
	v.t.Helper()
	for i := range records {
		records[i].Holder, records[i].Boot = holder, "1"
	}
	v.tell(leasePrefix+string(contested)+"/"+string(holder), records)
}

// whole is a grant of all of the device's memory.
func whole(id outboard.LeaseID, fence uint64) record {
	return record{Grant: outboard.Grant{Lease: id, Memory: 1 << 30, Exclusive: true, Expires: time.Now()}, Fence: fence}
}

// wantFirst wants the oldest grant of the device to be a holder's.
func (v *told) wantFirst(want outboard.NodeID, why string) {
	v.t.Helper()
	records, _ := v.recordsOf(contested)
	if len(records) == 0 || records[0].Holder != want {
		v.t.Errorf("%s: the grants are %+v, want first that of %s", why, records, want)
	}
}

// contend is a view in which the node victim has leased the device, and the node intruder has not.
func contend(t *testing.T) (v *told, fence uint64) {
	t.Helper()
	v = newTold(t)
	v.beat("intruder", "1")
	v.beat("victim", "1")
	v.has("victim", whole("l", 0))
	return v, v.rev
}

// A node that grants itself a lease with the ID of another node's, and removes it, does not have that
// node's lease count as granted later, after a grant of its own.
func TestGrantsWithTheIDOfAnother(t *testing.T) {
	v, fence := contend(t)
	v.has("intruder", whole("mine", 0), whole("l", 0))
	v.has("intruder", whole("mine", v.rev))
	v.has("victim", whole("l", fence))
	v.wantFirst("victim", "its lease is renewed")
	lease, ok := v.find(contested, "victim", "l")
	if !ok || lease.Holder != "victim" || lease.Fence != fence {
		t.Errorf("the lease is %+v, %v", lease, ok)
	}
}

// Nor does it renew another node's lease by one of the same ID, or end it.
func TestRenewalsWithTheIDOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, fence := contend(t)
		for range v.leaseTTL/time.Second + 1 {
			time.Sleep(time.Second)
			v.beat("victim", "1")
			v.beat("intruder", "1")
			v.has("intruder", whole("l", v.rev))
		}
		if _, ok := v.find(contested, "victim", "l"); ok {
			t.Errorf("the victim's lease, of revision %d, did not expire", fence)
		}
		if lease, ok := v.find(contested, "intruder", "l"); !ok || lease.Holder != "intruder" {
			t.Errorf("the intruder's lease is %+v, %v", lease, ok)
		}
	})
}

// A node dates no grant back by an ID that it has granted itself before, of another device or of less.
func TestGrantsDatedBack(t *testing.T) {
	v := newTold(t)
	v.beat("intruder", "1")
	v.beat("victim", "1")
	v.tell(leasePrefix+"intruder/opencl/0/intruder", []record{{Grant: outboard.Grant{Lease: "early", Holder: "intruder", Boot: "1"}}})
	early := v.rev
	v.has("intruder", record{Grant: outboard.Grant{Lease: "little", Memory: 1}})
	little := v.rev
	v.has("victim", record{Grant: outboard.Grant{Lease: "l", Memory: 1 << 20}})
	v.has("intruder", whole("early", early))
	v.wantFirst("victim", "a grant that was one of another device")
	v.has("intruder", record{Grant: outboard.Grant{Lease: "little", Memory: 1}, Fence: little})
	v.has("intruder", whole("little", little))
	v.wantFirst("victim", "a grant that was smaller")
}

// A grant that is renewed keeps its place.
func TestRenewedGrantsKeepTheirPlace(t *testing.T) {
	v, fence := contend(t)
	v.has("intruder", whole("mine", 0))
	for range 3 {
		v.has("victim", whole("l", fence))
	}
	v.wantFirst("victim", "renewed")
	v.has("victim")
	v.has("victim", whole("l", fence))
	v.wantFirst("intruder", "released and granted again")
}
