package state

import (
	"context"
	"testing"
	"testing/synctest"
)

// The logs and buckets of a pool are moved together: the elections of their leaders overlap. A pool
// with fifty of them would be without its state for more than ten seconds otherwise.
func TestStreamsAreImportedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := make([]streamExport, importsAtOnce)
		arrived, elected := make(chan struct{}, len(all)), make(chan struct{})
		go func() {
			for range all {
				<-arrived
			}
			close(elected)
		}()
		err := importEach(t.Context(), all, func(ctx context.Context, _ streamExport) error {
			arrived <- struct{}{}
			<-elected
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
