package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

const subjectsManifest = `app: words
functions:
  count: {module: words.wasm, limits: {queue: 100000}}
  other: {module: words.wasm, limits: {queue: 100000}}
  tired: {module: words.wasm, limits: {fuel: 1}}
  tick: {module: words.wasm}
subjects:
  - {subject: words.count, queue: readers, function: count}
  - {subject: words.tired, function: tired}
schedules:
  - {cron: "@every 1s", function: tick}
`

// A client of a NATS cluster that is not ours asks functions on three nodes: each message is
// answered once, when the app changes and when a node ends in between, too. When a node dies
// only what it worked on may stay without an answer.
func TestSubjectsOfForeignNATS(t *testing.T) {
	beside(t)
	theirs := natsAccounts(t)
	servers := natsCluster(t, theirs)
	args := []string{"--nats", servers[0].ClientURL() + "," + servers[1].ClientURL(), "--creds", theirs.creds}
	var specs []rig.Spec
	for _, name := range []string{"harbour", "dinghy", "buoy"} {
		specs = append(specs, rig.Spec{Name: name, Devices: "none", Args: args, Alone: len(specs) > 0})
	}
	r := own(t, rig.Options{Loopback: true, Nodes: specs})
	nodes := []*rig.Node{r.Node("harbour"), r.Node("dinghy"), r.Node("buoy")}
	dir := deployWords(t, nodes[0], subjectsManifest)
	deploy := func() {
		t.Helper()
		if out, err := nodes[0].Output(t.Context(), "deploy", dir); err != nil {
			t.Fatalf("deploy: %v: %s", err, out)
		}
	}
	for _, n := range nodes {
		served(t, n)
	}
	asker := newAsker(t, servers[2].ClientURL(), theirs.creds)
	t.Run("failure", asker.failure)

	asker.request(2000)
	asker.wantAnswers(t, 0)
	called := 0
	eventually(t, "all calls are counted", func() bool {
		called = callsOf(t, nodes[2], "count")
		return called >= 2000
	})
	if called != 2000 {
		t.Errorf("%d calls for 2000 messages", called)
	}
	ticksOnce(t, nodes[1])
	// With a foreign member of the group each message has one answer, too.
	stop := asker.join(t)
	asker.request(1000)
	asker.wantAnswers(t, 0)
	if n := stop(); n == 0 || n == 1000 {
		t.Errorf("the foreign member of the queue got %d of 1000 messages", n)
	}

	sending := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-sending:
				return
			default:
				// Requests without a bound would be lost by the server, and starve what is tested.
				if asker.unanswered() < 2000 {
					asker.request(500)
				} else {
					pause(t.Context(), time.Millisecond)
				}
			}
		}
	})
	write(t, filepath.Join(dir, "app.yaml"), []byte(strings.Replace(subjectsManifest, "app: words", "app: words # again", 1)))
	deploy()
	write(t, filepath.Join(dir, "app.yaml"), []byte(strings.Replace(subjectsManifest, "readers, function: count", "readers, function: other", 1)))
	deploy()
	if err := nodes[1].Stop(); err != nil {
		t.Error(err)
	}
	close(sending)
	all.Wait()
	asker.wantAnswers(t, 0)

	before := asker.sent
	asker.request(500)
	if err := nodes[2].Kill(); err != nil {
		t.Fatal(err)
	}
	asker.request(500)
	asker.wantAnswers(t, asker.sent-before)
	asker.request(500)
	asker.wantAnswers(t, 0) // of those that came after
	last := -1
	eventually(t, "the others have left", func() bool { last = callsOf(t, nodes[0], "tick"); return last >= 0 })
	eventually(t, "the schedule goes on", func() bool { return callsOf(t, nodes[0], "tick") > last })
}

// A node that was removed from the pool takes no messages of its apps' subjects any more, also where
// the pool's state is in a cluster that does not know of the removal.
func TestRemovedNodeOnForeignNATS(t *testing.T) {
	beside(t)
	theirs := natsAccounts(t)
	servers := natsCluster(t, theirs)
	args := []string{"--nats", servers[0].ClientURL() + "," + servers[1].ClientURL(), "--creds", theirs.creds}
	r := own(t, rig.Options{Loopback: true, Nodes: []rig.Spec{
		{Name: "harbour", Devices: "none", Args: args},
		{Name: "dinghy", Devices: "none", Args: args, Alone: true},
	}})
	harbour, dinghy := r.Node("harbour"), r.Node("dinghy")
	deployWords(t, harbour, subjectsManifest)
	served(t, harbour)
	served(t, dinghy)
	if out, err := harbour.Output(t.Context(), "nodes", "remove", "dinghy"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	asker := newAsker(t, servers[2].ClientURL(), theirs.creds)
	asker.request(200)
	asker.wantAnswers(t, 0)
	if err := harbour.Stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "the removed node takes no messages", func() bool {
		_, err := asker.conn.Request("words.count", nil, patience)
		return errors.Is(err, nats.ErrNoResponders)
	})
	if out, err := dinghy.Output(t.Context(), "apps", "remove", "words"); err == nil {
		t.Errorf("the removed node removes the app: %s", out)
	}
}

// deployWords deploys an app with one small module, words.wasm, and returns its folder.
func deployWords(t *testing.T, n *rig.Node, manifest string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	module, err := os.ReadFile("../../guest/testdata/rust/words.wasm")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "words.wasm"), module)
	write(t, filepath.Join(dir, "app.yaml"), []byte(manifest))
	if out, err := n.Output(t.Context(), "deploy", dir); err != nil {
		t.Fatalf("deploy: %v: %s", err, out)
	}
	return dir
}

// ticksOnce wants a schedule of each second to make a call on one of the nodes, not on all. On a busy
// machine calls that were late before a round began add to it; three nodes would make three times as
// many in each round.
func ticksOnce(t *testing.T, n *rig.Node) {
	t.Helper()
	const rounds, slack = 9, 3
	calls, most := 0, -1
	for round := 0; round < rounds && calls > most; round++ {
		begin, first := time.Now(), callsOf(t, n, "tick")
		eventually(t, "the schedule has made some calls", func() bool {
			now := callsOf(t, n, "tick")
			calls = now - first
			return first >= 0 && now >= 0 && calls >= 2*slack
		})
		most = int(time.Since(begin)/time.Second) + slack
	}
	if calls > most {
		t.Errorf("in each of %d rounds the schedule made too many calls: %d in the last, want %d at most", rounds, calls, most)
	}
}

// callsOf is how often a function was called on all nodes, -1 while a node does not tell.
func callsOf(t *testing.T, n *rig.Node, function string) int {
	t.Helper()
	all, err := (&client.Client{Data: n.Data()}).Functions(t.Context(), "words")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Name == function && len(f.Missing) == 0 {
			return int(f.Calls)
		}
	}
	return -1
}

// An asker is a NATS client that asks, and counts the answers to each question.
type requester struct {
	t    *testing.T
	conn *nats.Conn
	sent int

	mu      sync.Mutex
	answers map[int]int
	wrong   []string
}

func newAsker(t *testing.T, url, creds string) *requester {
	t.Helper()
	conn, err := nats.Connect(url, nats.UserCredentials(creds), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	a := &requester{t: t, conn: conn, answers: map[int]int{}}
	if _, err := conn.Subscribe("answers.*", a.recordAnswer); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *requester) recordAnswer(m *nats.Msg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	number, err := strconv.Atoi(strings.TrimPrefix(m.Subject, "answers."))
	if want := fmt.Sprintf("message%d 1\ncall 1\n", number); err != nil || string(m.Data) != want {
		a.wrong = append(a.wrong, string(m.Data))
	}
	a.answers[number]++
}

// request publishes n more requests.
func (a *requester) request(n int) {
	for range n {
		a.sent++
		err := a.conn.PublishRequest("words.count", fmt.Sprintf("answers.%d", a.sent), fmt.Appendf(nil, "message%d", a.sent))
		if err != nil {
			a.t.Error(err)
		}
	}
	if err := a.conn.FlushTimeout(patience); err != nil {
		a.t.Error(err)
	}
}

// unanswered is the number of requests without an answer.
func (a *requester) unanswered() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent - len(a.answers)
}

// wantAnswers wants one answer to each request so far, except lost of them.
func (a *requester) wantAnswers(t *testing.T, lost int) {
	t.Helper()
	open := func() (open, twice int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for i := 1; i <= a.sent; i++ {
			switch n := a.answers[i]; {
			case n == 0:
				open++
			case n > 1:
				twice++
			}
		}
		return open, twice
	}
	limit, last := time.Now().Add(patience), -1
	for n, _ := open(); n > 0 && time.Now().Before(limit) && (n > lost || n != last); n, _ = open() {
		last = n
		pause(t.Context(), time.Second)
	}
	n, twice := open()
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > lost || twice > 0 || len(a.wrong) > 0 {
		t.Errorf("of %d questions %d have no answer, %d have two; wrong answers: %q", a.sent, n, twice, a.wrong)
	}
	t.Logf("%d questions, %d without an answer", a.sent, n)
	for i := 1; i <= a.sent; i++ {
		a.answers[i] = 1 // those that are lost are counted once
	}
}

// join is another member of the group, which answers as the function does. stop says how many
// messages it got.
func (a *requester) join(t *testing.T) (stop func() int) {
	t.Helper()
	got := 0
	sub, err := a.conn.QueueSubscribe("words.count", "readers", func(m *nats.Msg) {
		got++
		_ = m.Respond(fmt.Appendf(nil, "%s 1\ncall 1\n", m.Data))
	})
	if err == nil {
		err = a.conn.FlushTimeout(patience) // then the server to which requests are sent knows the member
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
		return got
	}
}

// failure wants a function's failure as an answer: a problem document.
func (a *requester) failure(t *testing.T) {
	answer, err := a.conn.Request("words.tired", []byte("a"), patience)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"status":504`, `"limit":"fuel"`, "fuel"} {
		if !strings.Contains(string(answer.Data), want) {
			t.Errorf("got %s, want %s", answer.Data, want)
		}
	}
}
