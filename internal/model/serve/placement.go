package serve

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// A Report describes the models of a node. It is published in the pool's state.
type Report struct {
	Node outboard.NodeID `json:"node"`
	// Free is the available memory of the machine, in bytes.
	Free int64 `json:"free"`
	// Loaded is the number of loaded models.
	Loaded int `json:"loaded"`
	// Servers are the names of the node's servers for the engine "process".
	Servers []string `json:"servers,omitempty"`
	// Models are the contents that are loaded or were measured on the node.
	Models []ModelReport `json:"models"`
}

// A ModelReport describes one content of a model on a node.
type ModelReport struct {
	Name    string `json:"name"`
	Content string `json:"content"`
	Version int    `json:"version"`
	State   State  `json:"state"`
	Reason  string `json:"reason,omitempty"`
	// Files reports whether the artifacts are on the node.
	Files bool `json:"files,omitempty"`
	// Serves reports whether requests that name no version reach the content: it is ready and in
	// force, or another content that is in force is not ready yet.
	Serves bool `json:"serves,omitempty"`
	// Waiting counts requests, Expected is how long a new request waits, and Service how long it
	// takes.
	Waiting  int           `json:"waiting,omitempty"`
	Expected time.Duration `json:"expected,omitempty"`
	Service  time.Duration `json:"service,omitempty"`
	// Load is the duration of loading.
	Load time.Duration `json:"load,omitempty"`
	// Text is set for a model for text that is ready.
	Text *TextLoad `json:"text,omitempty"`
}

// A State is the state of a model on a node.
type State string

// The states.
const (
	StateUnloaded State = "unloaded"
	StateLoading  State = "loading"
	StateReady    State = "ready"
	StateFailed   State = "failed"
)

// A speed holds the measured durations of executing a request and of loading a content.
type speed struct{ service, load time.Duration }

// recordSpeeds records the measured speeds of an instance, and why it was not loaded.
func recordSpeeds(s *Server, i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.speeds[i.key.content]
	i.mu.Lock()
	known.load = cmp.Or(i.loadFor, known.load)
	delete(s.failures, i.key)
	if i.err != nil && !i.ended.Load() { // otherwise it was cancelled
		s.failures[i.key] = i.err.Error()
	}
	if i.queue != nil {
		_, _, service := i.queue.Expect()
		known.service = cmp.Or(service, known.service)
	}
	i.mu.Unlock()
	s.speeds[i.key.content] = known
}

// A Candidate is a node that could execute a request, with its expected time.
type Candidate struct {
	Node outboard.NodeID `json:"node"`
	// Cost is the expected time to a result.
	Cost time.Duration `json:"cost"`
	// Why explains how the cost comes about, or why the node is excluded.
	Why      string `json:"why"`
	Excluded bool   `json:"excluded,omitempty"`
	State    State  `json:"state"`
	// Failure is why the last attempt to load the version failed, if it is not loaded.
	Failure string `json:"failure,omitempty"`

	// ready reports whether the content of the version itself is ready.
	ready bool
	text  *TextLoad
}

// Assumptions where nothing was measured.
const (
	networkCost   = 500 * time.Microsecond // to another node and back
	assumedLoad   = 300 * time.Millisecond
	diskBandwidth = 1 << 30   // bytes per second
	linkBandwidth = 100 << 20 // bytes per second
)

// candidates returns the nodes that can execute a version's requests, the best one first. The
// requests are for the version in force, or exactly for v.
func (s *Server) candidates(v *repository.Version, exact bool) []Candidate {
	return slices.DeleteFunc(rankCandidates(s, v, exact, false), func(c Candidate) bool { return c.Excluded })
}

// Explain returns the reasons for and against each node, the best node first.
func (s *Server) Explain(v *repository.Version) []Candidate {
	return rankCandidates(s, v, false, true)
}

// rankCandidates estimates the cost on each node and ranks the nodes. Candidates for one request need
// no reasons in words.
func rankCandidates(s *Server, v *repository.Version, exact, inWords bool) []Candidate {
	key := keyOf(v)
	own := Report{Node: s.opts.Self, Servers: s.opts.Servers, Free: s.free.Load(), Loaded: countLoaded(s), Models: describeVersion(s, v, key, hasFiles(s, v, key, inWords))}
	reports := append([]Report{own}, s.opts.Peers.Reports()...)
	var list []Candidate
	for _, r := range reports {
		if len(list) > 0 && r.Node == s.opts.Self {
			continue
		}
		list = append(list, estimateCost(s.opts.Self, v, key, &r, exact, inWords))
	}
	slices.SortStableFunc(list, func(a, b Candidate) int {
		if a.Excluded != b.Excluded {
			if a.Excluded {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.Cost, b.Cost)
	})
	return list
}

// estimateCost estimates how long a request takes on a node, and explains it if inWords is set.
func estimateCost(self outboard.NodeID, v *repository.Version, key contentKey, r *Report, exact, inWords bool) Candidate {
	c := Candidate{Node: r.Node, State: StateUnloaded}
	if why := whyExcluded(v, r); why != "" {
		c.Excluded, c.Why = true, why
		return c
	}
	var m ModelReport
	var before *ModelReport // the preceding version, if it is ready
	for i := range r.Models {
		if r.Models[i].Name == v.Name && (r.Models[i].Content == key.content || m.Name == "") {
			m = r.Models[i]
		}
		if r.Models[i].Name == v.Name && r.Models[i].Content != key.content && r.Models[i].State == StateReady {
			before = &r.Models[i]
		}
	}
	if exact && m.Content != key.content {
		m, before = ModelReport{}, nil
	}
	// An earlier version that is ready serves while the one in force is being loaded, and if
	// loading it failed.
	c.State, c.ready = cmp.Or(m.State, StateUnloaded), m.State == StateReady && m.Content == key.content
	var why []string
	add := func(cost time.Duration, format string, args ...any) {
		if c.Cost += cost; inWords {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	switch {
	case m.State == StateFailed && m.Content == key.content && before == nil:
		c.Excluded, c.Why = true, m.Reason
		return c
	case m.State == StateFailed && m.Content == key.content:
		add(0, "version %d serves, since %s", before.Version, m.Reason)
		m = *before
	case m.State == StateReady:
		add(0, "loaded")
	case before != nil && before.Serves && !exact: // requests do not wait for the load
		add(0, "version %d serves until version %d is loaded", before.Version, v.Number)
		m = *before
	default:
		need := max(int64(v.Config.Memory), v.Bytes())
		if r.Free > 0 && need > r.Free {
			c.Excluded, c.Why = true, fmt.Sprintf("it needs %v of memory, and %v are free", outboard.Bytes(need), outboard.Bytes(r.Free))
			return c
		}
		load := cmp.Or(m.Load, assumedLoad+time.Duration(v.Bytes())*time.Second/diskBandwidth)
		add(load, "loading takes %v", load.Round(time.Millisecond))
		if !m.Files {
			fetch := time.Duration(v.Bytes()) * time.Second / linkBandwidth
			add(fetch, "fetching %v takes %v", outboard.Bytes(v.Bytes()), fetch.Round(time.Millisecond))
		}
		add(time.Duration(r.Loaded)*time.Millisecond, "%d other models there", r.Loaded)
		if c.State == StateUnloaded && m.Reason != "" {
			c.Failure = m.Reason
			add(0, "the last attempt failed: %s", m.Reason)
		}
	}
	if m.Text != nil {
		c.text = m.Text
		m.Text.explain(add)
	}
	if m.Expected > 0 {
		add(m.Expected, "queue of %v", m.Expected.Round(time.Microsecond))
	}
	if m.Service > 0 {
		add(m.Service, "execution in %v", m.Service.Round(time.Microsecond))
	}
	if r.Node != self {
		add(networkCost, "another node")
	}
	c.Why = strings.Join(why, ", ")
	return c
}

// whyExcluded returns the reason why the configuration of a version excludes a node, "" for none.
func whyExcluded(v *repository.Version, r *Report) string {
	if len(v.Config.Nodes) > 0 && !slices.Contains(v.Config.Nodes, string(r.Node)) {
		return "the model's configuration does not name the node"
	}
	if name := v.Config.Server; name != "" && !slices.Contains(r.Servers, name) {
		return fmt.Sprintf("the node has no model server %q: see outboard up --model-servers", name)
	}
	return ""
}

// report returns the report of this node.
func (s *Server) report() Report {
	s.free.Store(availableMemory())
	measureTexts(s)
	r := Report{Node: s.opts.Self, Servers: s.opts.Servers, Free: s.free.Load(), Loaded: countLoaded(s)}
	files := map[string]bool{}
	for _, m := range s.opts.Repository.List() {
		v := m.Current()
		key := keyOf(v)
		files[key.content] = hasFiles(s, v, key, true)
		r.Models = append(r.Models, describeVersion(s, v, key, files[key.content])...)
	}
	s.mu.Lock()
	s.files = files
	s.mu.Unlock()
	return r
}

// hasFiles reports whether the artifacts of a version are on this node, as in the last report unless
// verify is set: the store is locked and its file touched, which is too slow for every request.
func hasFiles(s *Server, v *repository.Version, key contentKey, verify bool) bool {
	s.mu.Lock()
	loaded := s.loaded[key] != nil
	has, known := s.files[key.content]
	s.mu.Unlock()
	if loaded || known && !verify {
		return loaded || has
	}
	has, err := s.opts.Artifacts.Has(v.Files[v.Main].Digest)
	return has && err == nil
}

func countLoaded(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.loaded)
}

// measureTexts measures the load of this node's models for text.
func measureTexts(s *Server) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.loaded))
	s.mu.Unlock()
	for _, i := range all {
		if isDone(i.ready) && i.err == nil {
			i.measureText()
		}
	}
}

// describeVersion reports the loaded contents of a model, and v's content even if it isn't loaded.
// files says whether the artifacts of v's content are on this node.
func describeVersion(s *Server, v *repository.Version, key contentKey, files bool) []ModelReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []ModelReport
	r := s.routes[v.Name]
	for k, i := range s.loaded {
		if k.name == v.Name {
			m := i.report()
			m.Serves = m.State == StateReady && r != nil && (i == r.current || i == r.previous)
			list = append(list, m)
		}
	}
	if s.loaded[key] == nil {
		known := s.speeds[key.content]
		list = append(list, ModelReport{
			Name: v.Name, Content: key.content, Version: v.Number, State: StateUnloaded, Files: files,
			Service: known.service, Load: known.load, Reason: s.failures[key],
		})
	}
	return list
}

func (i *instance) report() ModelReport {
	r := ModelReport{Name: i.spec.Name, Content: i.key.content, Version: i.version(), State: StateLoading, Files: true}
	if !isDone(i.ready) {
		return r
	}
	if i.err != nil {
		r.State, r.Reason = StateFailed, i.err.Error()
		return r
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if isDone(i.worker.Done()) { // the next request starts it again
		r.State, r.Load = StateUnloaded, i.loadFor+max(time.Until(i.restartTime()), 0)
		if i.again != nil {
			r.State = StateLoading
		}
		return r
	}
	r.State, r.Load, r.Text = StateReady, i.loadFor, i.text
	r.Waiting, r.Expected, r.Service = i.queue.Expect()
	return r
}

// availableMemory returns the memory available without swapping, in bytes, 0 if it is not known.
func availableMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nMemAvailable:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// publishInterval is the interval at which changed reports are published.
const publishInterval = time.Second

// publish publishes the reports of this node.
func publish(s *Server) {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		ctx, cancel := context.WithTimeout(s.life, 5*time.Second)
		if err := s.opts.Peers.Publish(ctx, s.report()); err != nil && s.life.Err() == nil {
			s.log.Debug("the models of this node are not reported", "error", err)
		}
		cancel()
		select {
		case <-s.life.Done():
			return
		case <-ticker.C:
		case <-s.reportChanged:
		}
	}
}

// announce triggers the publication of this node's report.
func announce(s *Server) {
	select {
	case s.reportChanged <- struct{}{}:
	default:
	}
}

// reportLimit is how long the placement of a version waits for the reports of as many nodes as it
// wants: a node that has just joined has not reported yet.
const reportLimit = 5 * time.Second

// awaitCandidates returns the nodes that can execute a version's requests. It waits until as many
// nodes have reported as are wanted, but no longer than reportLimit, since the pool may have fewer.
func awaitCandidates(ctx context.Context, s *Server, v *repository.Version, want int) []Candidate {
	if n := len(v.Config.Nodes); n > 0 {
		want = min(want, n)
	}
	limit := time.NewTimer(reportLimit)
	defer limit.Stop()
	for {
		changed := s.opts.Peers.Changed()
		list := s.Explain(v)
		usable := slices.DeleteFunc(slices.Clone(list), func(c Candidate) bool { return c.Excluded })
		if len(usable) >= want || slices.ContainsFunc(list, func(c Candidate) bool { return c.State == StateFailed }) {
			return usable
		}
		select {
		case <-changed:
		case <-limit.C:
			return usable
		case <-ctx.Done():
			return usable
		}
	}
}

// Place makes the best nodes load a version: as many as its configuration wants. It returns the
// nodes that have loaded it, and an error if there are none: of kind outboard.Invalid if that is the
// version's fault, also if its configuration excludes all nodes.
func (s *Server) Place(ctx context.Context, v *repository.Version) ([]outboard.NodeID, error) {
	want := max(v.Config.Replicas, 1)
	var nodes []outboard.NodeID
	var last error
	missing := true // all nodes lack something: the library that the configuration names, or memory
	for _, c := range awaitCandidates(ctx, s, v, want) {
		if len(nodes) == want {
			break
		}
		var err error
		if c.Node == s.opts.Self {
			err = s.Load(ctx, v.Name, "")
		} else {
			err = s.opts.Peers.Load(ctx, c.Node, v.Name, v.Number)
		}
		if err == nil {
			nodes = append(nodes, c.Node)
			continue
		}
		last = err
		kind := outboard.KindOf(err)
		missing = missing && (kind == outboard.NoDevice || kind == outboard.Exhausted)
		if kind == outboard.Invalid || kind == outboard.Conflict || ctx.Err() != nil {
			break // it would fail on all nodes, or another version has replaced it
		}
	}
	switch {
	case len(nodes) > 0:
		return nodes, nil
	case last != nil && missing:
		return nil, outboard.Errorf(outboard.Invalid, "", "no node can load it: %w", last)
	case last != nil:
		return nil, last
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, errNoCandidate(s, v)
}

// CheckPlacement returns the error that Place would return for a version that no node can load. It
// waits for the nodes' reports as Place does.
func CheckPlacement(ctx context.Context, s *Server, v *repository.Version) error {
	switch usable := awaitCandidates(ctx, s, v, 1); {
	case len(usable) > 0:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errNoCandidate(s, v)
}

func errNoCandidate(s *Server, v *repository.Version) error {
	var reasons []string
	unknown := slices.Clone(v.Config.Nodes)
	for _, c := range s.Explain(v) {
		reasons = append(reasons, fmt.Sprintf("%s: %s", c.Node, c.Why))
		unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == string(c.Node) })
	}
	for _, name := range unknown {
		reasons = append(reasons, name+": the pool has no such node now, or it serves no models")
	}
	return outboard.Errorf(outboard.Invalid, "load "+v.Name, "no node can load it: %s", strings.Join(reasons, "; "))
}
