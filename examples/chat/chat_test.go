package chat_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/outboard-run/outboard/examples/stage"
)

// patience bounds the wait for a line. It only ends a test that has failed.
const patience = time.Minute

type visitor struct {
	t    *testing.T
	conn *websocket.Conn
}

func enter(t *testing.T, app *stage.App, room, name string) visitor {
	t.Helper()
	url := strings.Replace(app.URL, "http", "ws", 1) + "/rooms/" + room + "?name=" + name
	conn, answer, err := websocket.Dial(t.Context(), url, nil) //nolint:bodyclose // Dial says that it needs no closing
	if err != nil {
		t.Fatalf("%v: %+v", err, answer)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return visitor{t, conn}
}

func (v visitor) say(line string) {
	v.t.Helper()
	if err := v.conn.Write(v.t.Context(), websocket.MessageText, []byte(line)); err != nil {
		v.t.Fatal(err)
	}
}

func (v visitor) hears(want ...string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	for _, line := range want {
		_, got, err := v.conn.Read(ctx)
		if err != nil {
			v.t.Fatal(err)
		}
		if string(got) != line {
			v.t.Fatalf("got %q, want %q", got, line)
		}
	}
}

func TestChatExample(t *testing.T) {
	app := stage.Deploy(t)
	t.Run("page", func(t *testing.T) { testPage(t, app) })
	t.Run("rooms", func(t *testing.T) { testRooms(t, app) })
	t.Run("stranger", func(t *testing.T) {
		stranger := enter(t, app, "harbour", "")
		stranger.hears("who are you? Add ?name=YOU to the address")
		if _, _, err := stranger.conn.Read(t.Context()); websocket.CloseStatus(err) == -1 {
			t.Errorf("got %v", err)
		}
	})
}

func testPage(t *testing.T, app *stage.App) {
	r, err := http.NewRequestWithContext(t.Context(), "GET", app.URL+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	p, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Body.Close()
	body, err := io.ReadAll(p.Body)
	if err != nil || p.StatusCode != http.StatusOK || !strings.Contains(string(body), "new WebSocket(") {
		t.Errorf("%v, status %d: %s", err, p.StatusCode, body)
	}
}

func testRooms(t *testing.T, app *stage.App) {
	ann := enter(t, app, "lobby", "ann")
	ann.hears("-- ann came")
	ann.say("  is anybody\nhere? ")
	ann.hears("ann: is anybody here?")
	bob := enter(t, app, "lobby", "bob")
	bob.hears("-- ann came\nann: is anybody here?", "-- bob came")
	ann.hears("-- bob came")
	cid := enter(t, app, "galley", "cid") // hears nothing of the lobby
	cid.hears("-- cid came")
	bob.say("yes")
	ann.hears("bob: yes")
	bob.hears("bob: yes")
	cid.say("soup")
	cid.hears("cid: soup")
	_ = ann.conn.Close(websocket.StatusNormalClosure, "")
	bob.hears("-- ann left")
}
