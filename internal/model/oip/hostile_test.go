package oip_test

import (
	"net/http"
	"testing"

	"github.com/outboard-run/outboard/internal/model/oip"
)

// A request without elements may name dimensions of any size, which outputs may have in turn.
func TestClassificationOfEmptyOutputs(t *testing.T) {
	h := oip.New(oip.Options{Models: &echo{}})
	for _, shape := range []string{"[0,4611686018427387904]", "[4611686018427387904,0]", "[0]"} {
		body := `{"inputs":[{"name":"x","datatype":"FP32","shape":` + shape + `,"data":[]}],` +
			`"outputs":[{"name":"x","parameters":{"classification":3}}]}`
		if w := send(t, h, http.MethodPost, "/v2/models/echo/infer", body); w.Code != http.StatusOK {
			t.Errorf("shape %s: %d %s", shape, w.Code, w.Body)
		}
	}
}
