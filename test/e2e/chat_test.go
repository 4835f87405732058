package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

// chatManifest is the example's without its page, and with time for a call while the pool's state elects
// another leader on a busy machine.
const chatManifest = `app: chat
functions: {chat: {module: chat.wasm, limits: {memory: 64MiB, deadline: 2m}, imports: [{bucket: history}]}}
buckets: [history]
routes: [{path: "/rooms/{room}", websocket: chat}]
`

// A visitor is in the room of the example chat.
type visitor struct {
	t    *testing.T
	name string
	conn *websocket.Conn
	gone chan struct{} // closed when the socket has ended

	mu    sync.Mutex
	heard []string
}

// enter connects a visitor to the room, on a node.
func enter(t *testing.T, n *rig.Node, name string) *visitor {
	t.Helper()
	status, err := (&client.Client{Data: n.Data()}).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, answer, err := websocket.Dial(t.Context(), "ws://"+status.HTTP+"/chat/rooms/lobby?name="+name, nil) //nolint:bodyclose // Dial says that it needs no closing
	if err != nil {
		t.Fatalf("%v: %+v", err, answer)
	}
	v := &visitor{t: t, name: name, conn: conn, gone: make(chan struct{})}
	go v.listen()
	t.Cleanup(func() {
		_ = conn.CloseNow()
		<-v.gone
	})
	return v
}

// listen records the messages until the socket ends.
func (v *visitor) listen() {
	defer close(v.gone)
	for {
		_, line, err := v.conn.Read(v.t.Context())
		if err != nil {
			return
		}
		v.mu.Lock()
		v.heard = append(v.heard, string(line))
		v.mu.Unlock()
	}
}

// send sends a line.
func (v *visitor) send(line string) {
	v.t.Helper()
	if err := v.conn.Write(v.t.Context(), websocket.MessageText, []byte(line)); err != nil {
		v.t.Errorf("%s says: %v", v.name, err)
	}
}

// lines are the messages since the visitor joined.
func (v *visitor) lines() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.heard[max(0, slices.Index(v.heard, v.joinLine())):])
}

func (v *visitor) joinLine() string { return "-- " + v.name + " came" }

func (v *visitor) lineOf(what string) string { return v.name + ": " + what }

func (v *visitor) hears(line string) bool { return slices.Contains(v.lines(), line) }

// left says whether the socket has ended.
func (v *visitor) left() bool {
	select {
	case <-v.gone:
		return true
	default:
		return false
	}
}

// by are the lines of one speaker.
func by(name string, lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, name+": ") })
}

// twice are the lines that are there more than once, but for what a speaker alone is told.
func twice(lines []string) []string {
	count := map[string]int{}
	for _, line := range lines {
		count[line]++
	}
	maps.DeleteFunc(count, func(line string, n int) bool { return n == 1 || strings.HasPrefix(line, "!! ") })
	return slices.Sorted(maps.Keys(count))
}

// chatPool is three nodes that serve the example, and whose state outlives one of them.
func chatPool(t *testing.T) []*rig.Node {
	t.Helper()
	var specs []rig.Spec
	for _, name := range []string{"harbour", "dinghy", "buoy"} {
		specs = append(specs, rig.Spec{Name: name, Devices: "none", Args: []string{"--http", "127.0.0.1:0"}})
	}
	r := own(t, rig.Options{Loopback: true, Nodes: specs})
	nodes := []*rig.Node{r.Node("harbour"), r.Node("dinghy"), r.Node("buoy")}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "app.yaml"), []byte(chatManifest))
	goModule(t, "github.com/outboard-run/outboard/examples/chat/functions/chat", filepath.Join(dir, "chat.wasm"))
	if out, err := nodes[0].Output(t.Context(), "deploy", dir); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	for _, n := range nodes {
		served(t, n)
	}
	eventually(t, "the state has three copies", func() bool { return copies(r, "harbour", "dinghy", "buoy") == 3 })
	return nodes
}

// all waits until everybody has heard a line.
func all(t *testing.T, room []*visitor, line string) {
	t.Helper()
	eventually(t, "everybody hears "+line, func() bool {
		return !slices.ContainsFunc(room, func(v *visitor) bool { return !v.hears(line) })
	})
}

// converse has everybody say a line at once, and again when all have heard all.
func converse(t *testing.T, room []*visitor, about string) {
	t.Helper()
	for i := range 10 {
		line := fmt.Sprint(about, " ", i)
		for _, v := range room {
			v.send(line)
		}
		for _, v := range room {
			all(t, room, v.lineOf(line))
		}
	}
}

// talk says lines until the visitor has heard so many of them; the others wait for the
// pool's state meanwhile, and may be lost.
func (v *visitor) talk(about string, lines int) {
	for i, heard := 0, 0; heard < lines && !v.left(); i++ {
		line := fmt.Sprint(about, " ", i)
		v.send(line)
		giveUp := time.Now().Add(30 * time.Second)
		for !v.hears(v.lineOf(line)) && time.Now().Before(giveUp) && !v.left() {
			pause(v.t.Context(), 10*time.Millisecond)
		}
		if v.hears(v.lineOf(line)) {
			heard++
		}
	}
}

// A node that is killed ends its own sockets only: the other clients still receive each other's
// messages, and so does a client that reconnects to another node. No message arrives twice.
func TestChatOverKilledNode(t *testing.T) {
	beside(t)
	nodes := chatPool(t)
	var room []*visitor
	come := func(n *rig.Node, name string) *visitor {
		v := enter(t, n, name)
		room = append(room, v)
		all(t, room, v.joinLine())
		return v
	}
	ann, eve := come(nodes[0], "ann"), come(nodes[0], "eve")
	bob, cid, dan := come(nodes[1], "bob"), come(nodes[2], "cid"), come(nodes[2], "dan")
	staying := []*visitor{bob, cid, dan}
	converse(t, room, "before")

	if err := nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	var talking sync.WaitGroup
	for _, v := range staying {
		talking.Go(func() { v.talk("meanwhile", 10) })
	}
	t.Cleanup(talking.Wait)
	eventually(t, "the sockets of the node end", func() bool { return ann.left() && eve.left() })
	room = staying
	again := func(n *rig.Node, name string) *visitor {
		v := comeBack(t, n, name)
		room = append(room, v)
		all(t, room, v.joinLine())
		return v
	}
	ann2, eve2 := again(nodes[1], "ann"), again(nodes[2], "eve")
	ann2.talk("again", 5)
	talking.Wait()
	converse(t, room, "afterwards")

	for _, v := range append(room, ann, eve) {
		if again := twice(v.lines()); len(again) > 0 {
			t.Errorf("%s heard twice: %q", v.name, again)
		}
	}
	for _, v := range staying {
		if v.left() {
			t.Errorf("the socket of %s has ended", v.name)
		}
		for _, speaker := range room {
			if d := cmp.Diff(by(speaker.name, bob.lines()), by(speaker.name, v.lines())); d != "" {
				t.Errorf("bob and %s heard not the same of %s (-bob +%s):\n%s", v.name, speaker.name, v.name, d)
			}
		}
	}
	missesNothing(t, bob, ann2, room)
	missesNothing(t, bob, eve2, room)
}

// comeBack connects a visitor that lost its socket again. While the pool's state is silent
// the function can't answer, and the socket ends: then another one is tried, by another name.
func comeBack(t *testing.T, n *rig.Node, name string) (v *visitor) {
	t.Helper()
	for try := 2; v == nil || !v.hears(v.joinLine()); try++ {
		v = enter(t, n, fmt.Sprint(name, try))
		eventually(t, v.name+" comes, or is sent away", func() bool { return v.left() || v.hears(v.joinLine()) })
	}
	return v
}

// missesNothing wants a newcomer to have received all messages that a witness received after
// the line that the newcomer had joined.
func missesNothing(t *testing.T, witness, newcomer *visitor, room []*visitor) {
	t.Helper()
	for _, speaker := range room {
		all, some := by(speaker.name, witness.lines()), by(speaker.name, newcomer.lines())
		if len(some) > len(all) || !slices.Equal(all[len(all)-len(some):], some) {
			t.Errorf("%s heard of %s\n%q\nand %s heard\n%q", newcomer.name, speaker.name, some, witness.name, all)
		}
	}
}
