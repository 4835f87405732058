package serve

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A simulatedNode keeps the state of the prompts that were used last.
type simulatedNode struct {
	perToken time.Duration
	room     int   // of prompts
	groups   []int // whose state it keeps, the last used at the end
	used     map[int]time.Duration
	report   TextLoad
	reported time.Duration
}

// prompts of simulated groups share all of their tokens but the last ones.
const (
	sharedTokens = 256
	ownTokens    = 16
)

// execute returns the time to the first token of a prompt of a group at a time.
func (n *simulatedNode) execute(group int, now time.Duration) time.Duration {
	tokens := ownTokens
	if i := slices.Index(n.groups, group); i >= 0 {
		n.groups = slices.Delete(n.groups, i, i+1)
	} else {
		tokens += sharedTokens
	}
	n.groups = append(n.groups, group)
	if len(n.groups) > n.room {
		n.groups = n.groups[1:]
	}
	n.used[group] = now
	return time.Duration(tokens) * n.perToken
}

// load returns the node's last report, of at most a second ago.
func (n *simulatedNode) load(now time.Duration) *TextLoad {
	if n.reported == 0 || now-n.reported >= publishInterval {
		n.reported, n.report = now, TextLoad{PerToken: n.perToken, Room: (n.room - len(n.groups)) * (sharedTokens + ownTokens)}
		for _, group := range n.groups {
			n.report.Prefixes = append(n.report.Prefixes, uint32(group)) //nolint:gosec // small
		}
		if len(n.groups) > 0 {
			n.report.Idle = now - n.used[n.groups[0]]
		}
	}
	return &n.report
}

// simulate executes prompts of groups, one after the other, on the nodes that choose returns, and
// returns their mean time to the first token, without the first turn.
func simulate(turns, groups int, choose func(nodes []*simulatedNode, i, group int, now time.Duration) int) time.Duration {
	var nodes []*simulatedNode
	for _, percent := range []int{100, 160, 140, 125} { // as measured on one machine, by chance
		nodes = append(nodes, &simulatedNode{perToken: time.Duration(percent) * 3 * time.Microsecond, room: 6, used: map[int]time.Duration{}})
	}
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // the order of prompts
	now, sum := time.Second, time.Duration(0)
	for turn := range turns {
		for i, group := range random.Perm(groups) {
			took := nodes[choose(nodes, turn*groups+i, group, now)].execute(group, now)
			now += took + 100*time.Millisecond
			if turn > 0 {
				sum += took
			}
		}
	}
	return sum / time.Duration((turns-1)*groups)
}

// chooseByReports places a prompt as OpenText does.
func chooseByReports(nodes []*simulatedNode, i, group int, now time.Duration) int {
	var list []textCandidate
	for at, n := range nodes {
		l := n.load(now)
		c := textCandidate{Candidate: Candidate{Node: outboard.NodeID(rune('0' + at)), text: l}}
		if at != i%len(nodes) {
			c.Cost = networkCost
		}
		if slices.Contains(l.Prefixes, uint32(group)) { //nolint:gosec // small
			c.cached = sharedTokens / engine.PrefixBlock * engine.PrefixBlock
		}
		list = append(list, c)
	}
	rankTexts(list, sharedTokens+ownTokens)
	return int(list[0].Node[0] - '0')
}

// TestPlacementUsesTheStateOfAllNodes: prompts are placed on nodes that keep their state even if another
// node is faster, as long as the nodes together have room for it.
func TestPlacementUsesTheStateOfAllNodes(t *testing.T) {
	const turns, groups = 20, 12
	roundRobin := simulate(turns, groups, func(nodes []*simulatedNode, i, _ int, _ time.Duration) int { return i % len(nodes) })
	placed := simulate(turns, groups, chooseByReports)
	best := simulate(turns, groups, func(nodes []*simulatedNode, _, group int, _ time.Duration) int { return group % len(nodes) })
	t.Logf("round robin %v, placed %v, each group on one node %v", roundRobin, placed, best)
	if 2*placed > roundRobin || placed > best*3/2 {
		t.Errorf("the mean time to the first token is %v placed, %v with each group on one node, and %v round robin", placed, best, roundRobin)
	}
	// Of more prompts than all nodes keep, some state is lost, but no more than in turn.
	if placed, inTurn := simulate(turns, 3*groups, chooseByReports), simulate(turns, 3*groups, func(nodes []*simulatedNode, i, _ int, _ time.Duration) int { return i % len(nodes) }); placed > inTurn {
		t.Errorf("without room for all: %v placed, %v round robin", placed, inTurn)
	}
}

// What was sent to nodes is forgotten with the versions that get no more prompts.
func TestSentPromptsOfReplacedVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sentPrompts
		for _, content := range []string{"first", "second", "third"} {
			s.add(nodeContent{"harbour", content}, engine.Prefixes{1, 2}, 64)
			if has, tokens := s.recent(nodeContent{"harbour", content}); !has(2) || tokens != 64 {
				t.Errorf("%s: %d tokens, prefix sent: %t", content, tokens, has(2))
			}
			time.Sleep(reportDelay / 2)
		}
		if _, kept := s.byNode[nodeContent{"harbour", "second"}]; !kept {
			t.Error("what was just sent is forgotten")
		}
		time.Sleep(2 * reportDelay)
		s.add(nodeContent{"harbour", "fourth"}, engine.Prefixes{1}, 32)
		if len(s.byNode) != 1 {
			t.Errorf("the prompts of %d versions are kept, want 1", len(s.byNode))
		}
	})
}

// The process of a model states when its state was used: a time in the distant past ends the search for
// a power of two.
func TestIdleTimeOfAHostileProcess(t *testing.T) {
	for _, used := range []time.Time{time.Unix(0, 0), time.Time{}.Add(1), time.Unix(1<<40, 0)} {
		if idle := idleTime(used); idle < time.Second || idle > maxIdle {
			t.Errorf("%v: %v", used, idle)
		}
	}
}
