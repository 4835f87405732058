package state

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
)

// tenantSet has the tenants, as words of subjects, that had apps when the table was read last. The zero
// value has none.
type tenantSet struct {
	mu sync.Mutex
	// all has the node that wrote all versions of a tenant's apps, "" for several nodes.
	all  map[string]string
	read time.Time
	// added has the tenants that a node without a copy was allowed to add, and when: the table may not
	// have their apps yet.
	added map[string]map[string]time.Time
}

const (
	// tenantsPause is the least time between two reads of the tenants that have apps.
	tenantsPause = time.Second
	// addedTime is how long the table may take to have a version that was allowed.
	addedTime = time.Minute
	// maxNodeTenants bounds the tenants of which a node without a copy of the table has deployed all
	// apps: every node of the pool runs a process for each of them.
	maxNodeTenants = 32
)

// hasApps returns nil if a tenant, as a word of a subject, has apps. A client with another tenant may
// try again: the app may be newer than what this node has read.
func (l guardedServer) hasApps(tenant string) error {
	l.tenants.mu.Lock()
	defer l.tenants.mu.Unlock()
	if _, ok := l.tenants.all[tenant]; !ok && time.Since(l.tenants.read) >= tenantsPause {
		if err := l.readTenants(); err != nil {
			return err
		}
	}
	if _, ok := l.tenants.all[tenant]; !ok {
		return outboard.Errorf(outboard.Unreachable, "create a bucket", "tenant %q has no app", keyOf(tenant))
	}
	return nil
}

// mayAddTenants decides whether a node that keeps no copy of the table may write versions of an app,
// whose tenants may be new.
func (l guardedServer) mayAddTenants(p permissions, versions []version) error {
	l.tenants.mu.Lock()
	defer l.tenants.mu.Unlock()
	if err := l.readTenants(); err != nil {
		return err
	}
	for _, v := range versions {
		tenant, ok := tokensOf(v.App.Tenant)
		if ok && !l.tenants.add(p.node, tenant) {
			return outboard.Errorf(outboard.Exhausted, "",
				"node %s has deployed the apps of %d tenants, which is as many as it may: deploy those of others on a node that keeps the pool's state",
				p.node, maxNodeTenants)
		}
	}
	return nil
}

// add reports whether a node may write a version of an app of a tenant. s.mu must be held.
func (s *tenantSet) add(node, tenant string) bool {
	if _, known := s.all[tenant]; known {
		return true
	}
	added := s.added[node]
	for name, at := range added {
		if _, known := s.all[name]; known || time.Since(at) > addedTime {
			delete(added, name)
		}
	}
	count := len(added)
	for _, by := range s.all {
		if by == node {
			count++
		}
	}
	if _, again := added[tenant]; !again && count >= maxNodeTenants {
		return false
	}
	if added == nil {
		added = make(map[string]time.Time)
		if s.added == nil {
			s.added = make(map[string]map[string]time.Time)
		}
		s.added[node] = added
	}
	added[tenant] = time.Now()
	return true
}

// readTenants reads the tenants that have apps. l.tenants.mu must be held.
func (l guardedServer) readTenants() error {
	apps, err := subjectBelow("apps/")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	all := make(map[string]string)
	err = l.pages(ctx, directGet, apps, func(m *nats.Msg) (uint64, error) {
		e, err := decodeEntry(m)
		if err != nil || e.Deleted {
			return e.Revision, err
		}
		var app versioned
		if json.Unmarshal(e.Value, &app) != nil {
			return e.Revision, nil //nolint:nilerr // nodes ignore a malformed record
		}
		for _, v := range app.Versions {
			tenant, ok := tokensOf(v.App.Tenant)
			if by, known := all[tenant]; ok && known && by != v.By {
				all[tenant] = ""
			} else if ok {
				all[tenant] = v.By
			}
		}
		return e.Revision, nil
	})
	if err == nil {
		l.tenants.all, l.tenants.read = all, time.Now()
	}
	return err
}
