package enrollment_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboard-run/outboard/examples/stage"
)

const (
	seats    = 40
	students = 100
	askers   = 16
)

// TestEnrollment sends concurrent requests of more students than there are seats, and
// repeats each request.
func TestEnrollment(t *testing.T) {
	app := stage.Deploy(t)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: askers}}
	defer client.CloseIdleConnections()
	if status, body := ask(t, client, "POST", app.URL+"/courses/math", "", fmt.Sprint(seats)); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, body)
	}
	var enrolled, repeated, refused atomic.Int64
	names := make(chan int)
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for n := range names {
				url := fmt.Sprintf("%s/courses/math/students/s%d", app.URL, n%students)
				status, body := ask(t, client, "PUT", url, fmt.Sprintf("r%d", n%students), "")
				switch status {
				case http.StatusCreated:
					enrolled.Add(1)
				case http.StatusOK:
					repeated.Add(1)
				case http.StatusConflict:
					refused.Add(1)
				default:
					t.Errorf("status %d: %s", status, body)
				}
			}
		})
	}
	for n := range 5 * students {
		names <- n
	}
	close(names)
	all.Wait()
	if enrolled.Load() != seats || repeated.Load() != 4*seats || refused.Load() != 5*(students-seats) {
		t.Errorf("%d enrolled, %d answered again, %d refused: want %d, %d, %d",
			enrolled.Load(), repeated.Load(), refused.Load(), seats, 4*seats, 5*(students-seats))
	}
	var course struct{ Free int }
	_, body := ask(t, client, "GET", app.URL+"/courses/math", "", "")
	if err := json.Unmarshal([]byte(body), &course); err != nil || course.Free != 0 {
		t.Errorf("%v: %s", err, body)
	}
}

func ask(t *testing.T, client *http.Client, method, url, id, content string) (int, string) {
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(content))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Header.Set("Request-Id", id)
	p, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer p.Body.Close()
	body, err := io.ReadAll(p.Body)
	if err != nil {
		t.Error(err)
	}
	return p.StatusCode, string(body)
}
