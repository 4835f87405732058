package serve

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// Text is a model for text on a node of the pool.
type Text struct {
	engine.TextModel
	// Version is the version that serves, Node the node on which it does.
	Version *repository.Version
	Node    outboard.NodeID
	// Pinned is the number by which the same version is opened again, since a generation uses one
	// version from its prompt, whose tokens are those of the version, to its last token.
	Pinned string
}

// A Prompt is a prompt from which a text is to be generated; without tokens it is not known yet.
type Prompt struct {
	Tokens []int32
	// CacheScope is the cache scope of the generation.
	CacheScope string
}

// OpenText returns the model for text with a name, and a function that the caller calls when it no
// longer needs the model. It chooses the node where the first token of a prompt is expected soonest:
// by the work that waits there, the model's speed, and how much of the prompt has its state there. The
// caller excludes nodes that have failed.
func (s *Server) OpenText(ctx context.Context, name, version string, prompt Prompt, exclude ...outboard.NodeID) (*Text, func(), error) {
	v, err := s.version(name, version)
	if err != nil {
		return nil, nil, err
	}
	if version == "" {
		v, version = chooseVersion(s, v)
	}
	// A prompt was opened before. If its version is no longer in force, no other node loads it.
	onlyReady := version != "" && len(prompt.Tokens) > 0 && !isInForce(s, v)
	hashes := engine.PrefixHashes(prompt.CacheScope, prompt.Tokens, engine.MaxPrefixes)
	var last error
	for _, c := range textCandidates(s, v, version != "", hashes, len(prompt.Tokens)) {
		if slices.Contains(exclude, c.Node) || onlyReady && !c.ready {
			continue
		}
		t, release, err := openTextAt(ctx, s, v, version, c.Candidate)
		if err == nil {
			t.Pinned = strconv.Itoa(t.Version.Number)
			countTextOutcomes(s, t)
			if len(prompt.Tokens) > 0 {
				ended := s.sent.add(nodeContent{c.Node, keyOf(v).content}, hashes, len(prompt.Tokens)-c.cached)
				return t, func() { ended(); release() }, nil
			}
			return t, release, nil
		}
		if !isRetriable(ctx, err) {
			return nil, nil, err
		}
		last = err
	}
	return nil, nil, cmp.Or(last, errNoNode(v.Name))
}

// countTextOutcomes counts the outcomes of a model's generations if it is a canary or the version that gets
// the other requests.
func countTextOutcomes(s *Server, t *Text) {
	v, err := s.version(t.Version.Name, "")
	if err != nil || !isCanary(v) {
		return
	}
	before := beforeCanary(s, v)
	switch key := keyOf(t.Version); {
	case key == keyOf(v):
		t.TextModel = &outcomeCounter{t.TextModel, func(fault bool) { countOutcome(s, v, false, fault) }}
	case before != nil && key == keyOf(before):
		t.TextModel = &outcomeCounter{t.TextModel, func(fault bool) { countOutcome(s, v, true, fault) }}
	}
}

// openTextAt opens a model for text on a node.
func openTextAt(ctx context.Context, s *Server, v *repository.Version, version string, c Candidate) (*Text, func(), error) {
	if c.Node == s.opts.Self {
		m, i, err := textHere(ctx, s, v, version != "")
		if err != nil {
			return nil, nil, err
		}
		return &Text{TextModel: m, Version: servedBy(i, v), Node: c.Node}, i.release, nil
	}
	info, serving, err := describeText(ctx, s, v, version, c)
	if err != nil {
		return nil, nil, err
	}
	return &Text{TextModel: s.opts.Peers.Text(c.Node, v.Name, serving.Number, info), Version: serving, Node: c.Node}, func() {}, nil
}

// servedBy returns the version that an instance serves: v, or an earlier one while v is being loaded.
func servedBy(i *instance, v *repository.Version) *repository.Version {
	if i.key == keyOf(v) {
		return v
	}
	own := i.spec
	own.Number = i.version()
	return &own
}

// describeText returns the description of a model for text on another node, and the version that
// serves there: v, or with version "" perhaps an earlier one while v is being loaded. It requests the
// description of a version that is ready there only once. What a node states holds for that node alone.
func describeText(ctx context.Context, s *Server, v *repository.Version, version string, c Candidate) (engine.Info, *repository.Version, error) {
	if c.ready {
		s.mu.Lock()
		info, known := s.infos[nodeContent{c.Node, keyOf(v).content}]
		s.mu.Unlock()
		if known {
			return info, v, nil
		}
	}
	number := 0
	if version != "" {
		number = v.Number
	}
	info, number, err := s.opts.Peers.Describe(ctx, c.Node, v.Name, number)
	if err == nil && info.Vocabulary == 0 && len(info.Outputs) > 0 {
		err = errNoText(v.Name)
	}
	if err != nil {
		return engine.Info{}, nil, err
	}
	if number != 0 && number != v.Number { // 0: a node of an earlier release
		if other, err := s.version(v.Name, strconv.Itoa(number)); err == nil {
			v = other
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.infos) > maxInfos {
		clear(s.infos)
	}
	s.infos[nodeContent{c.Node, keyOf(v).content}] = info
	return info, v, nil
}

// maxInfos bounds the number of descriptions that are cached.
const maxInfos = 1024

// A textCandidate is a node with the number of a prompt's tokens that have their state there, and how
// many tokens were sent there that no report includes.
type textCandidate struct {
	Candidate
	cached, sent int
}

// textCandidates returns the nodes that can continue a prompt, ordered by the expected time of the
// first token.
func textCandidates(s *Server, v *repository.Version, exact bool, hashes engine.Prefixes, tokens int) []textCandidate {
	var list []textCandidate
	content := keyOf(v).content
	for _, c := range s.candidates(v, exact) {
		t := textCandidate{Candidate: c}
		if l := c.text; l != nil && tokens > 0 {
			var recent func(uint32) bool
			recent, t.sent = s.sent.recent(nodeContent{c.Node, content})
			t.cached = cachedTokens(hashes, func(h uint32) bool { return slices.Contains(l.Prefixes, h) || recent(h) })
		}
		list = append(list, t)
	}
	if tokens > 0 {
		rankTexts(list, tokens)
	}
	return list
}

// rankTexts adds the costs of a prompt to the costs of nodes, and orders the nodes by them: the time to
// compute what is not cached, and the time to compute once more what the node loses to keep it. The
// fastest node would otherwise get all new prompts, and lose their state, while the others keep state
// that nobody needs. What was not used for longer is less likely to be needed: its time counts by the
// ratio of the idle times.
func rankTexts(list []textCandidate, tokens int) {
	idle := time.Duration(math.MaxInt64)
	for _, c := range list {
		if l := c.text; l != nil && l.displaced(tokens-c.cached+c.sent) > 0 {
			idle = min(idle, max(l.Idle, time.Second))
		}
	}
	for i := range list {
		c := &list[i]
		l := c.text
		if l == nil {
			continue
		}
		compute := tokens - c.cached + c.sent
		lost := float64(l.displaced(compute)) * float64(idle) / float64(max(l.Idle, time.Second))
		c.Cost += time.Duration(float64(compute)+lost) * l.perToken()
	}
	slices.SortStableFunc(list, func(a, b textCandidate) int { return cmp.Compare(a.Cost, b.Cost) })
}

// explain adds the waiting time of a model for text to the explanation of a candidate.
func (l *TextLoad) explain(add func(cost time.Duration, format string, args ...any)) {
	if wait := l.wait(); wait > 0 {
		add(wait, "%d generations run and %d wait: %v", l.Running, l.Waiting, wait.Round(time.Microsecond))
	}
	if l.PerToken > 0 {
		add(0, "%s tokens of a prompt per second", fmt.Sprint(int(time.Second/l.PerToken)))
	}
	if n := len(l.Prefixes); n > 0 {
		add(0, "%d blocks of %d tokens are cached", n, engine.PrefixBlock)
	}
}

// TextHere returns a model for text on this node, which loads it if it isn't loaded.
func (s *Server) TextHere(ctx context.Context, name, version string) (engine.TextModel, func(), error) {
	v, err := s.version(name, version)
	if err != nil {
		return nil, nil, err
	}
	m, i, err := textHere(ctx, s, v, version != "")
	if err != nil {
		return nil, nil, err
	}
	return m, i.release, nil
}

// textHere returns a model for text on this node, and its instance, which the caller releases.
func textHere(ctx context.Context, s *Server, v *repository.Version, exact bool) (*admitted, *instance, error) {
	i, err := s.acquire(ctx, v, exact)
	if err != nil {
		return nil, nil, err
	}
	if err := i.ensureRunning(ctx); err != nil {
		i.release()
		return nil, nil, err
	}
	i.mu.Lock()
	w, gate := i.worker, i.gate
	i.mu.Unlock()
	if !w.Text() {
		i.release()
		return nil, nil, errNoText(v.Name)
	}
	return &admitted{w, gate, i}, i, nil
}

func errNoText(name string) error {
	return outboard.Errorf(outboard.Invalid, "", "the model %s is for tensors, not for text", name)
}

// Await waits until this node knows a version of a model.
func (s *Server) Await(ctx context.Context, name string, version int) error {
	return s.opts.Repository.Await(ctx, name, version)
}
