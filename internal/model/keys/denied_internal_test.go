package keys

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

// A refusal of the pool's state says where the key can be revoked.
func TestDeniedRevocations(t *testing.T) {
	err := explainDenied("revoke key", "harbour/75c4775f2e35", outboard.Errorf(outboard.Denied, "", "may not write $KV"))
	if outboard.KindOf(err) != outboard.Denied || !strings.HasPrefix(err.Error(), "revoke key: node harbour created it") || strings.Contains(err.Error(), "$KV") {
		t.Errorf("got %v", err)
	}
	broken := errors.New("broken")
	if err := explainDenied("revoke key", "harbour/75c4775f2e35", broken); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
