package node

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A forwarded request goes on for a moment after its client has ended its sending.
func TestOutlastHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the client is gone")
		client, end := context.WithCancelCause(t.Context())
		r, err := http.NewRequestWithContext(client, http.MethodGet, "http://tenant/", nil)
		if err != nil {
			t.Fatal(err)
		}
		forwarded, release := outlastHalfClose(r)
		end(gone)
		synctest.Wait()
		if err := forwarded.Context().Err(); err != nil {
			t.Errorf("it ended with its client's sending: %v", err)
		}
		time.Sleep(halfCloseGrace)
		synctest.Wait()
		if err := context.Cause(forwarded.Context()); !errors.Is(err, gone) {
			t.Errorf("it has not ended with its client: %v", err)
		}
		release()

		r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://tenant/", nil)
		if err != nil {
			t.Fatal(err)
		}
		forwarded, release = outlastHalfClose(r)
		release()
		if forwarded.Context().Err() == nil {
			t.Error("a request that is answered keeps its context")
		}
	})
}
