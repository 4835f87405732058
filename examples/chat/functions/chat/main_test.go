package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/guesttest"
)

// event calls the function as the gateway does.
func event(t *testing.T, host *guesttest.Host, event, query, text string) string {
	t.Helper()
	host.Values = map[string]string{"ws.event": event, "ws.id": "7", "room": "lobby", "query": query}
	history.Close() // each call begins without imports
	b, err := guest.Call([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestChat(t *testing.T) {
	host := guesttest.Start(t)
	host.Bucket("history")
	for _, tt := range []struct{ event, query, text, want string }{
		{"open", "", "", `{"send":[{"to":"self","text":"who are you? Add ?name=YOU to the address"}],"close":true}`},
		{"open", "name=ann", "", `{"send":[{"to":"room:lobby","text":"-- ann came"}],"join":["lobby"]}`},
		{"message", "name=ann", " ahoy\r\nyou ", `{"send":[{"to":"room:lobby","text":"ann: ahoy you"}]}`},
		{"open", "name=bob", "", `{"send":[{"to":"self","text":"-- ann came\nann: ahoy you"},{"to":"room:lobby","text":"-- bob came"}],"join":["lobby"]}`},
		{"close", "name=ann", "", `{"send":[{"to":"room:lobby","text":"-- ann left"}]}`},
	} {
		if diff := cmp.Diff(tt.want, event(t, host, tt.event, tt.query, tt.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.event, diff)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	host := guesttest.Start(t)
	host.Bucket("history")
	for i := range 3 * recalled {
		event(t, host, "message", "name=ann", strconv.Itoa(i)+strings.Repeat("x", 2*longest))
	}
	kept := host.Bucket("history").Value("lobby")
	if n := strings.Count(kept, "ann: "); n != recalled || len(kept) > recalled*(longest+30) {
		t.Errorf("%d lines, %d bytes", n, len(kept))
	}
}

// A line that can't be stored is not sent, and its sender gets an error.
func TestNotHeard(t *testing.T) {
	host := guesttest.Start(t)
	host.Bucket("history").Set("lobby", "no list")
	if got := event(t, host, "message", "name=ann", "ahoy"); !strings.HasPrefix(got, `{"send":[{"to":"self","text":"!! nobody heard that: `) {
		t.Errorf("got %s", got)
	}
}
