package cli_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/train/object"
	"github.com/outboard-run/outboard/internal/train/object/objecttest"
)

// Old chunks of a bucket that are in no dataset of the pool are deleted, the others stay; if a
// dataset can't be read nothing is deleted.
func TestDatasetsCollect(t *testing.T) {
	n := startNode(t)
	bucket := objecttest.New(object.Credentials{Key: "key", Secret: "secret"})
	server := httptest.NewServer(bucket)
	defer server.Close()
	n.environ = append(n.environ, "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret")
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.txt"), []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.succeed(t, "datasets", "push", folder, "digits")
	put := func(digest string) { bucket.Put("/data/runs/chunks/sha256/"+digest[len("sha256:"):], []byte("12345")) }
	put(artifact.Digest([]byte("first"))) // The dataset's chunk.
	for i := range 5 {
		put(artifact.Digest(fmt.Appendf(nil, "old %d", i)))
	}
	bucket.Put("/data/runs/sums/job-old/1/part", []byte("12345"))
	bucket.Put("/data/runs/sums/job-9/1/part", []byte("12345"))
	n.jobs.jobs = append(n.jobs.jobs, client.Job{ID: "job-9", State: client.JobRunning}, client.Job{ID: "job-9", Node: "evil", State: client.JobSucceeded})
	bucket.Backdate(31 * 24 * time.Hour)
	put(artifact.Digest([]byte("new")))
	url := "s3://data/runs?endpoint=" + server.URL
	contains(t, n.succeed(t, "datasets", "collect", url, "--dry-run"), "\nin the bucket 9 45B\n", "\nnot needed 6 30B\n", "\ndeleted 0 0B\n")
	contains(t, n.succeed(t, "data", "collect", url, "-o", "json"), `"deleted": {`, `"objects": 6`, `"bucket": "s3://data/runs/"`)
	if left := len(bucket.Names()); left != 4 { // With the announcement of the collection.
		t.Errorf("%d objects are left, want 4: %q", left, bucket.Names())
	}
	n.refuse(t, 2, "--older-than 24h0m0s: want at least 168h0m0s", "datasets", "collect", url, "--older-than", "24h")
	n.refuse(t, 2, "no bucket of S3", "datasets", "collect", "digits")
	n.jobs.data = append(n.jobs.data, client.Dataset{Name: "lost", Node: "east", Digest: artifact.Digest([]byte("lost"))})
	n.refuse(t, 11, "nothing was deleted, since what the pool needs is not known: dataset east/lost: ", "datasets", "collect", url)
}
