package node

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

// A body that is too large, such as a push with a huge configuration, is refused with the limit.
func TestLargeBodies(t *testing.T) {
	r := httptest.NewRequest("POST", "/v1/models", strings.NewReader(`{"config": "`+strings.Repeat("#", maxBody)+`"}`))
	var push struct {
		Config string `json:"config"`
	}
	err := readBody(httptest.NewRecorder(), r, &push)
	if outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), "it is larger than the 1MiB that are allowed") {
		t.Errorf("got %v", err)
	}
}
