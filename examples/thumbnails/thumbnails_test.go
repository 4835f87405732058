package thumbnails_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/examples/stage"
	"github.com/outboard-run/outboard/examples/thumbnails/photo"
)

// TestThumbnailsExample compares the workflow's pictures with those of the same code in this
// process, and looks at whether anything was copied.
func TestThumbnailsExample(t *testing.T) {
	app := stage.Deploy(t)
	for seed := range uint64(3) {
		file, err := photo.Make(seed, 1024, 768)
		if err != nil {
			t.Fatal(err)
		}
		want, err := photo.Thumbnail(file)
		if err != nil {
			t.Fatal(err)
		}
		if status, got := post(t, app.URL+"/", file); status != http.StatusOK || !bytes.Equal(got, want) {
			t.Errorf("status %d, %d bytes: want %d", status, len(got), len(want))
		}
	}
	if status, body := post(t, app.URL+"/", []byte("no photograph")); status < http.StatusBadRequest {
		t.Errorf("no photograph: status %d, %s", status, body)
	}
	for _, e := range executions(t, app) {
		if e.State == "completed" {
			checkBytes(t, app, e.ID)
		}
	}
}

func post(t *testing.T, url string, file []byte) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "image/jpeg")
	p, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Body.Close()
	body, err := io.ReadAll(p.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p.StatusCode, body
}

func executions(t *testing.T, app *stage.App) (all []client.Execution) {
	t.Helper()
	read(t, app, &all, "executions", "thumbnails/thumbnail")
	if len(all) != 4 {
		t.Errorf("%d executions", len(all))
	}
	return all
}

// checkBytes wants all bytes that steps handed on handed on by pointer.
func checkBytes(t *testing.T, app *stage.App, id string) {
	t.Helper()
	var e client.Execution
	read(t, app, &e, "executions", "show", id)
	if len(e.Steps) != 4 {
		t.Errorf("%d steps", len(e.Steps))
	}
	for _, s := range e.Steps {
		if s.Copied != 0 || s.Pointer == 0 {
			t.Errorf("%s: %v by pointer, %v copied", s.Name, s.Pointer, s.Copied)
		}
	}
}

func read(t *testing.T, app *stage.App, to any, args ...string) {
	t.Helper()
	out, err := app.Node.Output(t.Context(), append(args, "-o", "json")...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), to); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
