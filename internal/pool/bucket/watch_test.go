package bucket_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/pool/bucket"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// Whatever one owner changes, another one's watcher hears; and another one's
// reads know it at once.
func TestWatch(t *testing.T) {
	ctx := testContext(t)
	s := statetest.Open(t)
	writer, reader := openBucket(ctx, t, s), openBucket(ctx, t, s)
	mustTxn(ctx, t, writer, -1, put("a/1", "old"), put("b", "old"))
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan bucket.Change, 100)
	ended := make(chan error, 1)
	go func() { ended <- reader.Watch(watch, "a/", func(c bucket.Change) { heard <- c }) }()
	wantHeard(t, heard, "a/1", "old", false)
	for i := range 5 {
		value := fmt.Sprint(i)
		mustTxn(ctx, t, writer, -1, put("a/2", value), put("b", value))
		wantValue(ctx, t, reader, "a/2", value)
		wantHeard(t, heard, "a/2", value, false)
	}
	mustTxn(ctx, t, writer, -1, bucket.Op{Kind: bucket.Delete, Key: "a/1"})
	wantHeard(t, heard, "a/1", "", true)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// Watching ends with the bucket, too.
	go func() { ended <- reader.Watch(ctx, "a/", func(c bucket.Change) { heard <- c }) }()
	wantHeard(t, heard, "a/2", "4", false)
	reader.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func wantHeard(t *testing.T, heard <-chan bucket.Change, key, value string, deleted bool) {
	t.Helper()
	c := <-heard
	if c.Revision == 0 {
		t.Errorf("%s has no revision", c.Key)
	}
	c.Revision = 0
	want := bucket.Change{Key: key, Entry: bucket.Entry{Value: []byte(value)}, Deleted: deleted}
	if len(c.Value) == 0 {
		c.Value = []byte{}
	}
	if diff := cmp.Diff(c, want); diff != "" {
		t.Errorf("heard: got against want:\n%s", diff)
	}
}
