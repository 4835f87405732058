package pool

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// errFull says that the devices that a request may use have no room now.
var errFull = errors.New("no room")

// leaser grants leases by compare-and-swap on the devices' keys, in the order of the queue.
type leaser struct {
	opts    Options
	state   *state.State
	log     *slog.Logger
	metrics *metrics
	view    *view
	tickets ticketSet
}

// grantDevice grants one device to a request, by compare-and-swap on the device's key. It
// returns errFull when another node won.
func (l *leaser) grantDevice(ctx context.Context, d outboard.Device, req Request) (outboard.Lease, error) {
	if err := checkCounts(l.view, l.view.self, 1, 0); err != nil {
		return outboard.Lease{}, err
	}
	r := l.newRecord(d, req)
	for {
		records, revision := l.view.recordsOf(d.ID)
		if !fits(d, records, req) {
			return outboard.Lease{}, errFull
		}
		fence, err := l.writeRecords(ctx, d.ID, r.Holder, append(records, r), revision)
		if err == nil {
			r.Fence = fence
			return r.lease(d.ID), nil
		}
		if err := l.afterConflict(ctx, d.ID, revision, err); err != nil {
			return outboard.Lease{}, fmt.Errorf("lease %s: %w", d.ID, err)
		}
		// A write whose answer was lost may have happened.
		if lease, ok := l.view.find(d.ID, r.Holder, r.Lease); ok {
			return lease, nil
		}
	}
}

func (l *leaser) newRecord(d outboard.Device, req Request) record {
	r := record{Grant: outboard.Grant{
		Lease: outboard.LeaseID(rand.Text()), Holder: l.view.self, Boot: l.view.boot,
		Memory: req.Memory, Exclusive: req.Memory == 0, Weight: max(req.Weight, 1),
		Expires: time.Now().Add(l.opts.LeaseTTL).UTC(), Program: req.Program,
	}}
	if r.Exclusive {
		r.Memory = d.Memory
	}
	return r
}

// afterConflict refreshes the view after a lost compare-and-swap. It returns other errors
// unchanged.
func (l *leaser) afterConflict(ctx context.Context, id outboard.DeviceID, expected uint64, err error) error {
	if !errors.Is(err, state.ErrConflict) {
		return err
	}
	last, err := l.state.LastWithin(ctx, leasesOf(id))
	if err != nil {
		return err
	}
	if err := l.view.waitForRevision(ctx, last); err != nil {
		return err
	}
	setRevision(l.view, id, expected, last)
	return nil
}

// leasesOf returns the prefix of a device's keys.
func leasesOf(id outboard.DeviceID) string { return leasePrefix + string(id) + "/" }

// writeRecords replaces a holder's grants of a device by the grants of that holder in records, and
// applies the change to the view. The device's keys must not have changed since revision.
func (l *leaser) writeRecords(ctx context.Context, id outboard.DeviceID, holder outboard.NodeID, records []record, revision uint64) (uint64, error) {
	own := slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.Holder != holder })
	var text []byte
	if len(own) > 0 {
		var err error
		if text, err = json.Marshal(own); err != nil {
			return 0, err
		}
	}
	revision, err := l.state.UpdateWithin(ctx, leasesOf(id), leasesOf(id)+string(holder), text, revision)
	if err != nil {
		return 0, err
	}
	for i := range own {
		if own[i].Fence == 0 {
			own[i].Fence = revision
		}
	}
	l.view.store(id, holder, own, revision)
	return revision, nil
}

// Renew extends a lease by LeaseTTL. An error of kind LeaseLost means that the lease is gone. An
// error of kind Unreachable means that the table does not answer, in which case no other node can
// obtain the device either: retry.
func (l *leaser) Renew(ctx context.Context, lease outboard.Lease) (outboard.Lease, error) {
	op := fmt.Sprintf("renew lease of %s", lease.Device)
	for {
		records, revision := l.view.recordsOf(lease.Device)
		i := indexOf(records, lease)
		if i < 0 {
			return lease, outboard.Errorf(outboard.LeaseLost, op, "it expired or was taken back")
		}
		records[i].Expires = time.Now().Add(l.opts.LeaseTTL).UTC()
		_, err := l.writeRecords(ctx, lease.Device, records[i].Holder, records, revision)
		if err == nil {
			return records[i].lease(lease.Device), nil
		}
		if err := l.afterConflict(ctx, lease.Device, revision, err); err != nil {
			return lease, &outboard.Error{Op: op, Kind: outboard.Unreachable, Err: err}
		}
	}
}

// Release ends a lease. Releasing a lease that is gone is not an error.
func (l *leaser) Release(ctx context.Context, lease outboard.Lease) error {
	for {
		records, revision := l.view.recordsOf(lease.Device)
		i := indexOf(records, lease)
		if i < 0 {
			return nil
		}
		holder := records[i].Holder
		_, err := l.writeRecords(ctx, lease.Device, holder, slices.Delete(records, i, i+1), revision)
		if err == nil {
			return nil
		}
		if err := l.afterConflict(ctx, lease.Device, revision, err); err != nil {
			return fmt.Errorf("release lease of %s: %w", lease.Device, err)
		}
	}
}

func indexOf(records []record, lease outboard.Lease) int {
	return slices.IndexFunc(records, func(r record) bool { return r.Holder == lease.Holder && r.Lease == lease.Lease })
}

// Hold renews a lease until ctx ends, and releases it then. It returns nil in that case, or an
// error of kind LeaseLost as soon as the lease is gone. It retries while the table does not
// answer: no other node can obtain the device meanwhile.
func (l *leaser) Hold(ctx context.Context, lease outboard.Lease) error {
	tick := time.NewTicker(l.opts.LeaseTTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.releaseAll([]outboard.Lease{lease})
		case <-tick.C:
		case <-l.view.changed():
			if _, ok := l.view.find(lease.Device, lease.Holder, lease.Lease); !ok {
				return outboard.Errorf(outboard.LeaseLost, "lease of "+string(lease.Device), "it expired or was taken back")
			}
			continue
		}
		renewed, err := l.renewOnce(ctx, lease)
		switch {
		case err == nil:
			lease = renewed
		case ctx.Err() != nil:
		case outboard.KindOf(err) == outboard.LeaseLost:
			return err
		default:
			l.log.Warn("a lease was not renewed, trying again", "device", lease.Device, "error", err)
		}
	}
}

func (l *leaser) renewOnce(ctx context.Context, lease outboard.Lease) (outboard.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.LeaseTTL/3)
	defer cancel()
	return l.Renew(ctx, lease)
}

// releaseAll releases leases although the caller's context may have ended.
func (l *leaser) releaseAll(leases []outboard.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.opts.LeaseTTL)
	defer cancel()
	var errs []error
	for _, lease := range leases {
		errs = append(errs, l.Release(ctx, lease))
	}
	return errors.Join(errs...)
}

// recordsOf returns a device's grants that are not void, oldest first, and the last revision of
// its keys.
func (v *view) recordsOf(id outboard.DeviceID) ([]record, uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.validRecords(id, time.Now()), v.granted[id].revision
}

// store applies grants that this node wrote, ahead of the watcher.
func (v *view) store(id outboard.DeviceID, holder outboard.NodeID, records []record, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if revision > v.granted[id].holders[holder].revision && v.setGrants(id, holder, slices.Clone(records), revision, time.Now()) {
		v.notify()
	}
}

// setRevision corrects the last revision of a device's keys from was to last. The table forgets
// deleted keys after a while, and their revisions.
func setRevision(v *view, id outboard.DeviceID, was, last uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if g := v.granted[id]; g.revision == was {
		g.revision = last
		v.granted[id] = g
	}
}
