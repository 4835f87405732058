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
	mu   sync.Mutex
	all  map[string]bool
	read time.Time
}

// tenantsPause is the least time between two reads of the tenants that have apps.
const tenantsPause = time.Second

// hasApps returns nil if a tenant, as a word of a subject, has apps. A client with another tenant may
// try again: the app may be newer than what this node has read.
func (l guardedServer) hasApps(tenant string) error {
	l.tenants.mu.Lock()
	defer l.tenants.mu.Unlock()
	if !l.tenants.all[tenant] && time.Since(l.tenants.read) >= tenantsPause {
		all, err := l.readTenants()
		if err != nil {
			return err
		}
		l.tenants.all, l.tenants.read = all, time.Now()
	}
	if !l.tenants.all[tenant] {
		return outboard.Errorf(outboard.Unreachable, "create a bucket", "tenant %q has no app", keyOf(tenant))
	}
	return nil
}

// readTenants reads the tenants that have apps.
func (l guardedServer) readTenants() (map[string]bool, error) {
	apps, err := subjectBelow("apps/")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	all := make(map[string]bool)
	err = l.pages(ctx, directGet, apps, func(m *nats.Msg) (uint64, error) {
		e, err := decodeEntry(m)
		if err != nil || e.Deleted {
			return e.Revision, err
		}
		var app versioned
		if json.Unmarshal(e.Value, &app) != nil || len(app.Versions) == 0 {
			return e.Revision, nil // nodes ignore a malformed record
		}
		if tenant, ok := tokensOf(app.last().App.Tenant); ok {
			all[tenant] = true
		}
		return e.Revision, nil
	})
	return all, err
}
