package job

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

// A leaseTable are leases that stand until the test takes them.
type leaseTable struct {
	mu      sync.Mutex
	leases  []outboard.Lease
	changed chan struct{}
}

func (l *leaseTable) Leases() []outboard.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leases
}

func (l *leaseTable) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *leaseTable) set(leases ...outboard.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = leases
	close(l.changed)
	l.changed = make(chan struct{})
}

func leaseOf(device string) outboard.Lease {
	return outboard.Lease{Grant: outboard.Grant{Lease: outboard.LeaseID("of-" + device)}, Device: outboard.DeviceID(device)}
}

// Ranks end soon after one of their leases: a manager that releases it and keeps its connection would
// otherwise use the device for good.
func TestRanksEndWithTheirLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := leaseOf("dinghy/opencl/0"), leaseOf("dinghy/opencl/1")
		table := &leaseTable{changed: make(chan struct{})}
		table.set(a, b)
		h := NewHost(HostOptions{Standing: table})
		lost := make(chan error, 1)
		go func() { lost <- h.awaitLeaseLoss(t.Context(), []outboard.Lease{a, b}) }()
		ended := func(after time.Duration) error {
			time.Sleep(after)
			synctest.Wait()
			select {
			case err := <-lost:
				return err
			default:
				return nil
			}
		}
		if err := ended(time.Hour); err != nil {
			t.Errorf("with both leases: %v", err)
		}
		table.set(a)
		if err := ended(leaselessLimit / 2); err != nil {
			t.Errorf("shortly after a release: %v", err)
		}
		table.set(a, b)
		if err := ended(time.Hour); err != nil {
			t.Errorf("with both leases again: %v", err)
		}
		table.set(a)
		if err := ended(leaselessLimit + 2*standingInterval); outboard.KindOf(err) != outboard.LeaseLost {
			t.Errorf("after a release: %v", err)
		}
	})
}

// A lease bounds what one run takes from its node. A manager can't present it twice, but the next
// attempt of its job may have the lease of a run that is about to end.
func TestLeasesAreOfOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHost(HostOptions{})
		a, b, c := leaseOf("dinghy/opencl/0"), leaseOf("dinghy/opencl/1"), leaseOf("dinghy/opencl/2")
		reserve := func(leases ...outboard.Lease) error { return h.reserveLeases(t.Context(), leases) }
		if err := reserve(a, b, a); outboard.KindOf(err) != outboard.Conflict {
			t.Errorf("twice in a request: %v", err)
		}
		if err := reserve(a, b); err != nil {
			t.Errorf("after a refusal: %v", err)
		}
		if err := reserve(c, b); outboard.KindOf(err) != outboard.Conflict {
			t.Errorf("in use by another run: %v", err)
		}
		if err := reserve(c); err != nil {
			t.Errorf("another device: %v", err)
		}
		next := make(chan error, 1)
		go func() { next <- reserve(b) }()
		synctest.Wait()
		h.freeLeases([]outboard.Lease{a, b})
		if err := <-next; err != nil {
			t.Errorf("after the run: %v", err)
		}
	})
}

// A lease of another holder with the same ID does not stand for a run's lease, nor does the run's own
// with another size.
func TestMissingLeases(t *testing.T) {
	lease := leaseOf("dinghy/opencl/0")
	lease.Holder, lease.Memory = "b", 1<<30
	other, smaller := lease, lease
	other.Holder, smaller.Memory = "c", 1
	for name, standing := range map[string]outboard.Lease{"of another holder": other, "smaller": smaller} {
		if missingLease([]outboard.Lease{standing}, []outboard.Lease{lease}) != lease.Device {
			t.Errorf("a lease that is %s stands for the run's", name)
		}
	}
	if missing := missingLease([]outboard.Lease{other, lease}, []outboard.Lease{lease}); missing != "" {
		t.Errorf("the lease of %s is missing", missing)
	}
}
