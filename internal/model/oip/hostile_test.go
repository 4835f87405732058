package oip_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
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

// The outputs of a request count for its client until they are sent, and so does their JSON, which is
// larger.
func TestOutputsCountForTheirClient(t *testing.T) {
	var held, most int64
	limit := int64(1 << 20)
	h := oip.New(oip.Options{Models: &echo{}, Reserve: func(_ context.Context, n int64) (func(), error) {
		if held+n > limit {
			return nil, outboard.Errorf(outboard.Busy, "", "the client holds too much")
		}
		held += n
		most = max(most, held)
		return func() { held -= n }, nil
	}})
	request := func(elements int) int {
		body := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"data":[1%s]}]}`, elements, strings.Repeat(",1", elements-1))
		return send(t, h, http.MethodPost, "/v2/models/echo/infer", body).Code
	}
	for _, c := range []struct{ elements, status, least int }{{100, http.StatusOK, 0}, {200 << 10, http.StatusOK, 600 << 10}, {400 << 10, http.StatusServiceUnavailable, 0}} {
		most = 0
		if got := request(c.elements); got != c.status || most < int64(c.least) {
			t.Errorf("%d elements: status %d, %d bytes are held", c.elements, got, most)
		}
		if held != 0 {
			t.Errorf("%d elements: %d bytes are held afterwards", c.elements, held)
		}
	}
}
