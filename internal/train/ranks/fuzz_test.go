package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/ipc"
)

// FuzzRequests: whatever a rank sends, the server goes on to answer, touches nothing outside of the
// memory that the rank shares, and counts nothing that is not held once the rank has gone.
func FuzzRequests(f *testing.F) {
	for kind, body := range map[string]string{
		"join": `{"group":"g","rank":0,"size":1}`, "call": `{"operation":0,"element":1,"count":8}`,
		"send": `{"peer":1,"tag":-1,"offset":8,"bytes":65536}`, "receive": `{"peer":1,"bytes":-1}`,
		"read": `{"name":"a","at":-1,"offset":1,"bytes":4,"next":["b"]}`, "checkpoint": `{"number":1}`,
		"suspend": `{"rank":0,"moves":true}`, "resume": `{"rank":-1}`, "elsewhere": `{"expired":[0,-1]}`,
	} {
		f.Add(kind, []byte(body), uint8(1), uint8(1))
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte, size, times uint8) {
		var object map[string]json.RawMessage
		if json.Unmarshal(body, &object) != nil || len(body) > maxRequest/2 || len(kind) > maxRequest/16 {
			t.Skip("the local protocol sends objects that fit into a message")
		}
		path := filepath.Join(t.TempDir(), "ranks")
		s, err := Serve(path, Options{
			Read:       func(_ context.Context, _ string, _ int64, buf []byte, _ []string) error { clear(buf); return nil },
			Checkpoint: func(context.Context, *os.File, int) error { return errors.New("none") },
			StageLimit: time.Minute, Ranks: 1,
			Elsewhere: func(context.Context, []int) (bool, error) { return true, nil },
			Moved:     func(context.Context, *os.File, int) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		r := dial(t, path)
		if size > 0 {
			_ = r.request("join", map[string]any{"group": "g", "rank": 0, "size": int(size)}) // any answer will do
		}
		for range min(times, 8) {
			if err := r.conn.Send(kind, json.RawMessage(body), r.file); err != nil && !errors.Is(err, ipc.ErrClosed) {
				t.Logf("not sent: %v", err)
			}
		}
		if r.request("none", nil) == nil { // refused, or the connection has ended
			t.Errorf("after %s an unknown request is carried out", kind)
		}
		_ = r.conn.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := s.held.requests.Load(); n != 0 {
			t.Errorf("after %s: %d bytes are still counted", kind, n)
		}
	})
}
