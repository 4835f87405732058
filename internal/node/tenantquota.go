package node

import "sync"

// A tenantQuota counts what each tenant holds. The zero value is ready for use.
type tenantQuota struct {
	mu   sync.Mutex
	held map[string]int
}

// acquire counts one more, and reports whether the tenant had fewer than most. "" stands for others
// than tenants, which are not counted.
func (q *tenantQuota) acquire(tenant string, most int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if tenant == "" {
		return true
	}
	if q.held[tenant] >= most {
		return false
	}
	if q.held == nil {
		q.held = map[string]int{}
	}
	q.held[tenant]++
	return true
}

// release reverses a successful acquire.
func (q *tenantQuota) release(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if tenant == "" {
		return
	}
	if q.held[tenant]--; q.held[tenant] == 0 {
		delete(q.held, tenant)
	}
}
