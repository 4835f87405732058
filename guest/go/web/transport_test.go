package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/guest/go/guesttest"
	"github.com/outboard-run/outboard/guest/go/web"
)

// A client with the Transport sends requests through the host, which answers for the hosts that
// it knows.
func TestTransport(t *testing.T) {
	host := guesttest.Start(t)
	host.Outgoing["api.example.com"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.String()+" "+r.Header.Get("X-Key"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(append([]byte("got "), body...))
	})
	client := http.Client{Transport: web.Transport{}}
	r := httptest.NewRequest(http.MethodPost, "https://api.example.com/orders?full=1", strings.NewReader("two seats"))
	r.RequestURI = ""
	r.Header.Set("X-Key", "7")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if got := resp.Header.Get("X-Seen"); err != nil || resp.StatusCode != 201 || string(body) != "got two seats" || got != "POST https://api.example.com/orders?full=1 7" {
		t.Errorf("%d %q %q, %v", resp.StatusCode, body, got, err)
	}
	if _, err := client.Get("https://other.example.com/"); err == nil || !strings.Contains(err.Error(), "outgoing:other.example.com") { //nolint:bodyclose // there is none
		t.Errorf("another host: %v", err)
	}
	if held := host.OpenImports(); len(held) > 0 {
		t.Errorf("held: %v", held)
	}
}
