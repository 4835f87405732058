package fractal_test

import (
	"fmt"
	"image/png"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/examples/stage"
)

// TestFractal draws on a real device and compares with a computation in Go.
func TestFractal(t *testing.T) {
	app := stage.DeployWithDevices(t)
	const size = 64
	status, body := get(t, fmt.Sprintf("%s/picture?x=-0.5&y=0&width=3&size=%d", app.URL, size))
	p, err := png.Decode(strings.NewReader(body))
	if status != http.StatusOK || err != nil {
		t.Fatalf("status %d, %v: %.200s", status, err, body)
	}
	same := 0
	for j := range size {
		for i := range size {
			r, g, b, _ := p.At(i, j).RGBA()
			if black := r|g|b == 0; black == stays(-2+3*float32(i)/size, 1.5-3*float32(j)/size) {
				same++
			}
		}
	}
	// Rounding differs between compilers, which is visible at the edge of the set.
	if same < size*size*99/100 {
		t.Errorf("%d of %d points are right", same, size*size)
	}
	if status, body := get(t, app.URL+"/picture?size=0"); status != http.StatusBadRequest {
		t.Errorf("status %d: %s", status, body)
	}
	if status, body := get(t, app.URL+"/device"); status != http.StatusOK || !strings.HasSuffix(body, " on stage\n") {
		t.Errorf("status %d: %s", status, body)
	}
	together(t, app)
}

// stays reports whether a point has not escaped after 1000 steps.
func stays(cx, cy float32) bool {
	var x, y float32
	for range 1000 {
		if x*x+y*y >= 4 {
			return false
		}
		x, y = x*x-y*y+cx, 2*x*y+cy
	}
	return true
}

// together draws many pictures concurrently with one lease.
func together(t *testing.T, app *stage.App) {
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			status, body := get(t, app.URL+"/picture?size=100")
			if _, err := png.Decode(strings.NewReader(body)); err != nil {
				t.Errorf("status %d, %v: %.200s", status, err, body)
			}
		})
	}
	all.Wait()
	leases, err := (&client.Client{Data: app.Node.Data()}).Leases(t.Context())
	if err != nil || len(leases) != 1 || leases[0].Program != "default/fractal/draw" || leases[0].Fence == 0 {
		t.Errorf("got %+v, %v, want one lease that is kept", leases, err)
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(text)
}
