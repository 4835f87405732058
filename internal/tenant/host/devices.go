package host

import (
	"crypto/rand"
	"crypto/subtle"
)

// KeySize is the length of a process's key.
const KeySize = 26

// newKey returns a new key, by which a process proves its tenant to its node.
func newKey() string { return rand.Text() }

// TenantOfKey returns the tenant whose process has a key.
func (h *Host) TenantOfKey(key string) (tenant string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, k := range h.tenants {
		if k.config.DevicesKey != "" && subtle.ConstantTimeCompare([]byte(k.config.DevicesKey), []byte(key)) == 1 {
			return name, true
		}
	}
	return "", false
}
