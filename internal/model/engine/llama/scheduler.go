package llama

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/turns"
)

// chunkBeside is the number of tokens of long prompts that are computed in a micro-batch beside
// sequences that decode, so that these don't wait long for their next token. Prompts that fit into
// one micro-batch together are computed in one: several would delay as many tokens of each sequence
// that decodes.
const chunkBeside = 64

// A scheduler runs the sequences of a model in common micro-batches. Its goroutine alone calls
// the library's context.
type scheduler struct {
	m           *textModel
	batch       *batch
	sampler     sampler
	tree        *prefixTree
	parked      parkedStates
	computation computation
	running     []*sequence
	slots       []int32 // identifiers of the library that are free for running sequences
	freeTreeIDs []int32 // identifiers that are free for sequences of the tree

	mu      sync.Mutex
	waiting []*sequence // by their turns
	turns   turns.Order
	closed  bool
	woken   chan struct{} // of capacity 1
	ended   chan struct{}
	counts  engine.TextStats

	decoding           int // sequences whose next token the micro-batch computes
	perToken, lifetime average
	prefixesChanged    bool
}

// An average is a moving average of times.
type average time.Duration

// add adds a time with the weight of an eighth.
func (a *average) add(d time.Duration) {
	if *a == 0 {
		*a = average(d)
		return
	}
	*a += (average(d) - *a) / 8
}

func newScheduler(m *textModel) *scheduler {
	s := &scheduler{m: m, batch: newBatch(m.chunk), tree: newPrefixTree(cheapCells(m.header), m.cells), woken: make(chan struct{}, 1), ended: make(chan struct{})}
	s.parked.most, s.computation.flag = m.parked, m.abort
	for i := range m.sequences {
		s.slots = append(s.slots, int32(i))
	}
	for i := range m.cached {
		s.freeTreeIDs = append(s.freeTreeIDs, int32(m.sequences+i))
	}
	go s.run()
	return s
}

func (s *scheduler) submit(q *sequence) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	q.turn = turns.Turn{Client: q.request.CacheScope, Priority: q.request.Priority}
	s.turns.Add(&q.turn)
	s.waiting = append(s.waiting, q)
	slices.SortFunc(s.waiting, func(a, b *sequence) int { return a.turn.Compare(&b.turn) })
	s.mu.Unlock()
	s.wake()
	return nil
}

// wake makes the scheduler check its queue and the contexts that have ended, after the micro-batch
// that it computes (see interrupt).
func (s *scheduler) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// close ends all sequences and waits for the scheduler's goroutine.
func (s *scheduler) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.computation.close()
	s.wake()
	<-s.ended
}

func (s *scheduler) stats() engine.TextStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Waiting = len(s.waiting)
	for _, q := range s.waiting {
		c.Pending += len(q.tokens)
	}
	return c
}

func (s *scheduler) run() {
	defer close(s.ended)
	defer s.batch.free()
	defer s.parked.removeIf(func(*parkedState) bool { return true })
	for {
		if len(s.running) == 0 {
			<-s.woken
		}
		if s.sweep() {
			return
		}
		s.admit()
		s.fill()
		if s.batch.n > 0 {
			s.decode()
		}
		s.publishStats()
	}
}

// sweep ends the sequences whose context has ended, or all sequences when the model is being
// closed, and reports whether it is.
func (s *scheduler) sweep() (closed bool) {
	s.mu.Lock()
	closed = s.closed
	gone := func(q *sequence) bool { return closed || q.ctx.Err() != nil }
	var dropped []*sequence
	s.waiting = slices.DeleteFunc(s.waiting, func(q *sequence) bool {
		if gone(q) {
			dropped = append(dropped, q)
			s.turns.Remove(&q.turn)
			return true
		}
		return false
	})
	s.mu.Unlock()
	for _, q := range dropped {
		q.finish(endReason(q, closed))
	}
	for _, q := range slices.Clone(s.running) {
		if gone(q) {
			s.end(q, endReason(q, closed))
		}
	}
	return closed
}

func endReason(q *sequence, closed bool) error {
	if err := context.Cause(q.ctx); err != nil {
		return err
	}
	if closed {
		return errClosed
	}
	return nil
}

// admit starts waiting sequences, in order, while slots and cells are free.
func (s *scheduler) admit() {
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 || len(s.slots) == 0 {
			s.mu.Unlock()
			return
		}
		q := s.waiting[0]
		s.mu.Unlock()
		if !s.reserve(q.cells()) {
			return
		}
		s.mu.Lock()
		s.turns.Start(&q.turn)
		s.turns.Remove(&q.turn)
		s.waiting = slices.DeleteFunc(s.waiting, func(w *sequence) bool { return w == q })
		s.mu.Unlock()
		s.start(q)
	}
}

// reserve evicts cached sequences until n cells are free, and reports whether that is possible now.
// A sequence counts with all cells that it may need, including the cells that it shares.
func (s *scheduler) reserve(n int) bool {
	used := 0
	for _, q := range s.running {
		used += q.cells()
	}
	if used+n > s.m.cells {
		return false
	}
	for used+n+s.tree.cells > s.m.cells {
		s.evict()
	}
	return true
}

// evict frees the cells of the cached sequence that was not used for longest, and parks its state.
func (s *scheduler) evict() {
	id := s.tree.oldest()
	if id == noSequence {
		return
	}
	s.park(id)
	s.tree.evict(id)
	s.release(id)
	s.prefixesChanged = true
}

func (s *scheduler) release(id int32) {
	s.removeCells(id, 0)
	s.freeTreeIDs = append(s.freeTreeIDs, id)
}

// removeCells frees the cells of a sequence from a position on.
func (s *scheduler) removeCells(id int32, from int) {
	s.m.lib.call(fnMemoryRemove, s.m.memory, uintptr(id), uintptr(from), ^uintptr(0))
}

func (s *scheduler) shareCells(from, to int32, begin, end int) {
	s.m.lib.call(fnMemoryCopy, s.m.memory, uintptr(from), uintptr(to), uintptr(begin), uintptr(end))
}

// start assigns a sequence its slot and the state that other sequences have already computed.
func (s *scheduler) start(q *sequence) {
	q.started = time.Now()
	q.usage.Queued = q.started.Sub(q.queued)
	if err := s.prepare(q); err != nil {
		q.grammar.close()
		q.finish(err)
		return
	}
	q.slot = s.slots[len(s.slots)-1]
	s.slots = s.slots[:len(s.slots)-1]
	s.running = append(s.running, q)
	if s.m.cached > 0 {
		s.reuse(q)
	}
}

// prepare creates the grammar and replays the tokens that another node has generated.
func (s *scheduler) prepare(q *sequence) error {
	var err error
	if q.request.Grammar != "" {
		if q.grammar, err = s.m.newGrammar(q.request.Grammar); err != nil {
			return err
		}
	}
	for _, token := range q.tokens[len(q.tokens)-q.request.Continued:] {
		q.text.push(s.m.piece(token))
		if q.grammar == nil {
			continue
		}
		if !q.grammar.allows(token) {
			return outboard.Errorf(outboard.Invalid, "grammar", "it forbids a token that was generated before")
		}
		q.grammar.accept(token)
	}
	return nil
}

// reuse shares the longest beginning of the prompt that was computed before in its scope. The
// prompt's last token is always computed, for its logits.
func (s *scheduler) reuse(q *sequence) {
	prompt := q.tokens[:len(q.tokens)-1]
	source, length := s.tree.match(q.request.CacheScope, prompt)
	for _, other := range s.running {
		if other == q || other.request.CacheScope != q.request.CacheScope {
			continue
		}
		if n := common(other.tokens[:other.computed], prompt); n > length {
			source, length = other.slot, n
		}
	}
	if n := s.restore(q, prompt, length); n > 0 {
		length = n
	} else if length > 0 {
		s.shareCells(source, q.slot, 0, length)
	}
	s.tree.budget.recordPrompt(q.request.CacheScope, prompt, length)
	q.computed = length
	q.usage.CachedTokens = length
}

// fill forms a micro-batch: the last token of each sequence that decodes, and chunks of prompts.
func (s *scheduler) fill() {
	s.batch.reset()
	decoding := 0
	for _, q := range s.running {
		q.output, q.kept = -1, q.computed
		if q.computed == len(q.tokens)-1 {
			q.output = s.batch.add(q.tokens[q.computed], q.computed, q.slot, true)
			q.computed++
			decoding++
		}
	}
	s.decoding = decoding
	available := s.batch.available()
	if decoding > 0 && s.pendingTokens() > available {
		available = min(available, chunkBeside)
	}
	fillPrompts(s, available)
}

// pendingTokens returns the number of tokens that the running sequences have yet to compute.
func (s *scheduler) pendingTokens() int {
	n := 0
	for _, q := range s.running {
		n += len(q.tokens) - q.computed
	}
	return n
}

// fillChunk adds at most available tokens of a prompt and returns their number.
func (s *scheduler) fillChunk(q *sequence, available int) int {
	n := min(available, q.remaining(), q.chunkLimit())
	if q.replays() && q.computed > q.kept {
		n = 0 // the micro-batch has a part of it
	}
	for range n {
		last := q.computed == len(q.tokens)-1
		i := s.batch.add(q.tokens[q.computed], q.computed, q.slot, last)
		q.computed++
		if last {
			q.output = i
		}
	}
	return n
}

func (s *scheduler) decode() {
	messages.drain()
	began := time.Now()
	s.computation.setSequences(slices.DeleteFunc(slices.Clone(s.running), func(q *sequence) bool { return q.computed == q.kept }))
	r := int32(s.m.lib.callStruct(fnDecode, s.batch.params(), s.m.context))
	s.computation.setSequences(nil)
	if r == decodeAborted {
		takeBack(s)
		return
	}
	if n := s.batch.n - s.decoding; n >= chunkBeside {
		s.perToken.add(time.Since(began) / time.Duration(n))
	}
	if r != 0 {
		s.failAll(outboard.Errorf(outboard.Other, "decode", "llama.cpp returned %d: %s", r, lastMessage("it gives no reason")))
		return
	}
	for _, q := range slices.Clone(s.running) {
		if q.output >= 0 {
			s.sample(q)
		}
	}
	if s.m.afterStep != nil {
		s.m.afterStep()
	}
}

// failAll ends all sequences after an error that left the library's state undefined.
func (s *scheduler) failAll(err error) {
	for _, q := range slices.Clone(s.running) {
		q.computed = 0 // none of its state is kept
		s.end(q, err)
	}
	for s.tree.cells > 0 {
		id := s.tree.oldest()
		s.tree.remove(id)
		s.release(id)
		s.prefixesChanged = true
	}
	s.m.lib.call(fnMemoryClear, s.m.memory, 1)
}

// sample chooses the next token of a sequence and emits it.
func (s *scheduler) sample(q *sequence) {
	if q.decoding.IsZero() {
		q.decoding = time.Now()
		q.usage.Prefill = q.decoding.Sub(q.started)
	}
	logits := memory[float32](s.m.lib.call(fnLogits, s.m.context, uintptr(q.output)), s.m.info.Vocabulary)
	token, err := s.choose(q, logits)
	if err != nil {
		s.end(q, err)
		return
	}
	t := engine.Token{ID: token}
	if q.request.LogProbs >= 0 {
		s.describe(&t, logits, q.request.LogProbs)
	}
	q.tokens = append(q.tokens, token)
	q.generated++
	s.advance(q, &t)
	if err := q.emit(t); err != nil || t.Last != "" {
		s.end(q, err)
	}
}

func (s *scheduler) choose(q *sequence, logits []float32) (int32, error) {
	if q.grammar != nil {
		return q.grammar.choose(&s.sampler, logits, q.tokens, &q.request.Sampling)
	}
	return s.sampler.choose(logits, q.tokens, &q.request.Sampling), nil
}

// advance sets the token's text, and the finish reason if it is the last.
func (s *scheduler) advance(q *sequence, t *engine.Token) {
	switch isEnd := s.m.isEnd(t.ID); {
	case isEnd && !q.request.IgnoreEnd:
		t.Text, t.Last = q.text.flush(), engine.FinishStop
		return
	case !isEnd:
		t.Text = q.text.push(s.m.piece(t.ID))
	}
	switch {
	case q.text.stopped:
		t.Last = engine.FinishStop
	case q.generated == q.request.MaxTokens:
		t.Text += q.text.flush()
		t.Last = engine.FinishLength
	}
}

func (s *scheduler) describe(t *engine.Token, logits []float32, n int) {
	var top []candidate
	t.LogProb, top = logProbabilities(logits, t.ID, n)
	for _, c := range top {
		t.Top = append(t.Top, engine.Candidate{ID: c.id, Text: s.m.piece(c.id), LogProb: float32(c.logit)})
	}
}

// end removes a sequence from the running ones and keeps its state for later prompts.
func (s *scheduler) end(q *sequence, err error) {
	s.running = slices.DeleteFunc(s.running, func(r *sequence) bool { return r == q })
	q.grammar.close()
	s.cacheComputed(q)
	s.removeCells(q.slot, 0)
	s.slots = append(s.slots, q.slot)
	s.wake() // for a sequence that waits for the slot, if no other one runs
	if err == nil {
		s.lifetime.add(time.Since(q.started))
	}
	s.mu.Lock()
	s.counts.PromptTokens += int64(q.usage.PromptTokens)
	s.counts.CachedTokens += int64(q.usage.CachedTokens)
	s.counts.GeneratedTokens += int64(q.generated)
	s.mu.Unlock()
	q.finish(err)
}

// cacheComputed moves the computed tokens of a sequence into the tree, and shares the cells of the
// prefix that the tree holds already.
func (s *scheduler) cacheComputed(q *sequence) {
	computed := q.tokens[:q.computed]
	if s.m.cached == 0 || len(computed) == 0 {
		return
	}
	holder, known := s.tree.match(q.request.CacheScope, computed)
	if known == len(computed) {
		return
	}
	if len(s.freeTreeIDs) == 0 {
		s.evict()
		holder, known = s.tree.match(q.request.CacheScope, computed)
	}
	id := s.freeTreeIDs[len(s.freeTreeIDs)-1]
	s.freeTreeIDs = s.freeTreeIDs[:len(s.freeTreeIDs)-1]
	if known > 0 {
		s.shareCells(holder, id, 0, known)
	}
	s.shareCells(q.slot, id, known, len(computed))
	for _, redundant := range s.tree.insert(id, q.request.CacheScope, computed) {
		s.release(redundant)
	}
	s.prefixesChanged = true
	for s.tree.cells > s.tree.budget.cells && len(s.tree.ends) > 1 {
		s.evict()
	}
}

// stateRoom returns how many more tokens of state are kept before state is lost, and when the state that
// would be lost first was used last.
func stateRoom(s *scheduler) (tokens int, oldest time.Time) {
	tokens = max(0, s.tree.budget.cells-s.tree.cells)
	if perToken := s.m.header.StateBytes(); perToken > 0 {
		tokens += int(max(0, s.parked.most-s.parked.bytes) / perToken)
	}
	if len(s.parked.states) > 0 {
		return tokens, s.parked.states[0].used
	}
	return tokens, s.tree.used[s.tree.oldest()] // the zero time if it is empty
}

func (s *scheduler) publishStats() {
	used, pending := s.tree.cells, s.pendingTokens()
	for _, q := range s.running {
		used += q.computed - q.usage.CachedTokens
	}
	prefixes := s.counts.Prefixes // only this goroutine sets it
	if s.prefixesChanged {
		prefixes, s.prefixesChanged = firstPrefixes(s.tree.prefixes(), s.parked.prefixes()), false
	}
	room, oldest := stateRoom(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Pending, s.counts.Prefixes = pending, prefixes
	s.counts.Room, s.counts.OldestUse = room, oldest
	s.counts.PerToken, s.counts.Lifetime = time.Duration(s.perToken), time.Duration(s.lifetime)
	s.counts.Running = len(s.running)
	s.counts.StateUsage, s.counts.ParkedBytes = float64(used)/float64(s.m.cells), s.parked.bytes
	s.counts.MicroBatches++
}
