package client

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

// Errors of interfaces that are not ours have a kind, and so an exit status, by their HTTP status.
func TestDecodeErrorWithoutKind(t *testing.T) {
	for status, kind := range map[int]outboard.Kind{
		400: outboard.Invalid, 401: outboard.Denied, 403: outboard.Denied, 404: outboard.NotFound, 429: outboard.Busy, 503: outboard.Unreachable, 500: outboard.Other,
	} {
		r := &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(`{"error": "refused"}`)), Request: &http.Request{Method: http.MethodPost}}
		if err := decodeError(r); outboard.KindOf(err) != kind || err.Error() != "refused" {
			t.Errorf("%d: %v (%v), want %v", status, err, outboard.KindOf(err), kind)
		}
	}
}
