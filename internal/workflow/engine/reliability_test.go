package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/engine/enginetest"
)

// The workflows of the test, with what each makes of {"n": 1}.
var storms = []struct{ workflow, want string }{
	{`do: [{a: {call: add}}, {b: {call: effect}}, {c: {call: add}}, {d: {call: effect}}]`, `{"n":5}`},
	{`do:
  - make: {call: large}
  - blur: {call: large}
  - tell: {call: effect, with: {body: {n: 1}}}
  - read: {call: add}`, `{"n":3}`},
	{`do:
  - both: {fork: {branches: [{l: {do: [{a: {call: add}}, {b: {call: effect}}]}}, {m: {call: large}}, {r: {call: effect}}]}}
  - sum: {set: {n: "${ .[0].n + .[2].n }"}}`, `{"n":5}`},
	{`do: [{each: {for: {in: "[1,2,3]"}, do: [{one: {call: effect}}, {two: {call: add}}]}}]`, `{"n":7}`},
	{`do:
  - careful:
      try: [{a: {call: flaky}}, {b: {call: effect}}]
      catch: {retry: {delay: PT1S, backoff: {exponential: {}}, limit: {attempt: {count: 9}}}}
  - rest: {wait: PT5S}
  - c: {call: effect, timeout: {after: PT1H}}`, `{"n":4}`},
	{`do: [{race: {fork: {compete: true, branches: [{slow: {do: [{s: {wait: PT1H}}]}}, {fast: {call: effect}}]}}}, {tell: {emit: {event: {with: {source: s, type: t, data: "${ . }"}}}}}, {e: {set: "${ .data }"}}]`, `{"n":2}`},
	{`timeout: {after: PT3H}
do: [{w: {wait: PT1M}}, {again: {call: effect}}, {look: {switch: [{less: {when: .n < 4, then: again}}]}}]`, `{"n":4}`},
}

// storm is a pool whose nodes die.
type storm struct {
	t    *testing.T
	pool *enginetest.Pool

	mu      sync.Mutex
	random  *rand.Rand
	calm    bool
	last    time.Time // when a node was killed last
	nodes   []*enginetest.Node
	engines []*engine.Engine
	born    int
	kills   int
	calls   map[string]int
}

// TestNodesDie runs a thousand executions on three nodes that are killed, replaced
// and given errors at random: before and after each append, save, publication and
// claim, and within calls. All executions end, as they should, and no step is
// called once its end is recorded.
func TestNodesDie(t *testing.T) {
	executions := 1000
	if testing.Short() {
		executions = 100
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ride(t, seed, executions/2) })
		})
	}
}

func ride(t *testing.T, seed uint64, executions int) {
	s := &storm{t: t, pool: enginetest.New(), random: rand.New(rand.NewPCG(seed, 7)), calls: map[string]int{}}
	for i, c := range storms {
		s.pool.Deploy("app", fmt.Sprint("flow", i), parse(t, c.workflow))
	}
	for range 3 {
		s.birth()
	}
	began := time.Now()
	defer s.end()
	var starters sync.WaitGroup
	for i := range executions {
		starters.Go(func() {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			s.start(i)
		})
	}
	starters.Wait()
	for i := range executions {
		s.check(i, began)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%d nodes were killed", s.kills)
	if s.kills < 20 {
		t.Errorf("only %d nodes were killed", s.kills)
	}
}

// birth adds a node.
func (s *storm) birth() {
	s.mu.Lock()
	s.born++
	n := s.pool.Node(fmt.Sprint("node", s.born))
	n.Fault = s.fault
	s.mu.Unlock()
	opts := n.Options(enginetest.Functions{Effects: []string{"effect"}, F: func(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
		return s.call(ctx, n, c)
	}})
	opts.Running = 50
	e, err := engine.Open(s.t.Context(), opts)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Dead() { // It died young, and has a successor.
		go func() { _ = e.Close() }()
		return
	}
	s.nodes, s.engines = append(s.nodes, n), append(s.engines, e)
}

// fault lets something go wrong now and then.
func (s *storm) fault(n *enginetest.Node, op string, after bool) error {
	s.mu.Lock()
	chance := s.random.IntN(1000)
	calm := s.calm
	deadly := chance < 10 && s.kills < 60 && time.Since(s.last) > 100*time.Millisecond
	if deadly {
		s.last = time.Now()
	}
	s.mu.Unlock()
	switch {
	case calm || n.Dead():
		return nil
	case deadly:
		s.kill(n)
		return enginetest.ErrDead
	case chance < 30:
		// Before, it did not happen; after, only the answer is lost.
		return errors.New("the network is down")
	}
	return nil
}

// kill ends a node and brings another one later.
func (s *storm) kill(n *enginetest.Node) {
	n.Kill()
	s.mu.Lock()
	s.kills++
	var e *engine.Engine
	for i, other := range s.nodes {
		if other == n {
			e = s.engines[i]
			s.nodes, s.engines = append(s.nodes[:i:i], s.nodes[i+1:]...), append(s.engines[:i:i], s.engines[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	go func() {
		if e != nil {
			// What is left of its process goes.
			if err := e.Close(); err != nil {
				s.t.Error(err)
			}
		}
		time.Sleep(time.Second)
		s.birth()
	}()
}

// call is the functions. The node may die meanwhile.
func (s *storm) call(ctx context.Context, n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
	if n.Dead() {
		return engine.Outcome{}, enginetest.ErrDead
	}
	if s.recorded(c) {
		s.t.Errorf("step %s of %s is called though its end is recorded", c.Path, c.Execution)
	}
	s.mu.Lock()
	s.calls[string(c.Execution)+" "+c.Path]++
	pause := time.Duration(s.random.IntN(20)) * time.Millisecond
	s.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return engine.Outcome{}, ctx.Err()
	}
	if err := s.fault(n, "call", true); n.Dead() {
		return engine.Outcome{}, err
	}
	return s.compute(n, c)
}

func (s *storm) compute(n *enginetest.Node, c engine.FunctionCall) (engine.Outcome, error) {
	body := c.Body
	if c.At != nil {
		large, err := n.At(c.Execution, *c.At)
		if err != nil {
			return engine.Outcome{}, err
		}
		body = large
	}
	var in struct{ N int }
	if err := json.Unmarshal([]byte(strings.TrimSpace(string(body))), &in); err != nil {
		return engine.Outcome{}, err
	}
	s.mu.Lock()
	unlucky := c.Function == "flaky" && s.random.IntN(3) == 0
	s.mu.Unlock()
	if unlucky {
		return engine.Outcome{}, errors.New("bad luck")
	}
	out := fmt.Sprintf(`{"n":%d}`, in.N+1)
	if c.Function == "large" {
		at := n.Arena(c.Execution, []byte(strings.Repeat(" ", 1000)+out))
		return engine.Outcome{At: &at}, nil
	}
	return engine.Outcome{Body: []byte(out)}, nil
}

// recorded reports whether the step's end is in the log.
func (s *storm) recorded(c engine.FunctionCall) bool {
	for _, e := range s.events(c.Execution) {
		if e.Step != nil && e.Step.Path == c.Path {
			return true
		}
	}
	return false
}

func (s *storm) events(id engine.ID) []core.Event {
	var events []core.Event
	for _, r := range s.pool.Records("test/" + string(id)) {
		var e core.Event
		if err := json.Unmarshal(r.Data, &e); err != nil {
			s.t.Error(err)
		}
		events = append(events, e)
	}
	return events
}

// anyEngine is one of a node that lives.
func (s *storm) anyEngine() *engine.Engine {
	for {
		s.mu.Lock()
		if len(s.engines) > 0 {
			e := s.engines[s.random.IntN(len(s.engines))]
			s.mu.Unlock()
			return e
		}
		s.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

// start asks until it is told that the execution is recorded.
func (s *storm) start(i int) {
	req := engine.StartRequest{App: "app", Workflow: fmt.Sprint("flow", i%len(storms)), Name: fmt.Sprint("x", i), Input: []byte(`{"n": 1}`)}
	for {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		_, err := s.anyEngine().Start(ctx, req)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// check waits for an execution and looks at its log.
func (s *storm) check(i int, began time.Time) {
	id := engine.ID(fmt.Sprint("app/x", i))
	var got engine.Result
	for {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
		result, err := s.anyEngine().Wait(ctx, id)
		cancel()
		if err == nil {
			got = result
			break
		}
		time.Sleep(time.Second)
		if time.Since(began) > 6*time.Hour {
			for _, r := range s.pool.Records("test/" + string(id)) {
				s.t.Logf("%s", r.Data)
			}
			s.t.Log("owner", s.pool.Owner(id))
			s.t.Fatalf("%s does not end: %v", id, err)
		}
	}
	if want := storms[i%len(storms)].want; got.Status != core.Completed || string(got.Output) != want {
		s.t.Errorf("%s: got %s %s (%v), want %s", id, got.Status, got.Output, got.Error, want)
	}
	seen := map[string]bool{}
	for _, e := range s.events(id) {
		if e.Step == nil {
			continue
		}
		if seen[e.Step.Path] {
			s.t.Errorf("%s: step %s is recorded twice", id, e.Step.Path)
		}
		seen[e.Step.Path] = true
		if e.Step.Value != nil && e.Step.Value.Digest == "" {
			s.t.Errorf("%s: step %s has a value that was not saved", id, e.Step.Path)
		}
	}
}

func (s *storm) end() {
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	time.Sleep(time.Minute)
	synctest.Wait()
	if n := s.pool.Claims(); n != 0 {
		s.t.Errorf("%d claims are left", n)
	}
	s.mu.Lock()
	engines := s.engines
	s.mu.Unlock()
	for _, e := range engines {
		if err := e.Close(); err != nil {
			s.t.Error(err)
		}
	}
}
