package serve

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// waiting is a model whose generations take a time to their first token and end after it.
type waiting struct {
	engine.TextModel
	first               time.Duration
	rendered, tokenized int
}

func (m *waiting) Render(context.Context, engine.Conversation) (string, error) {
	m.rendered++
	return "", nil
}

func (m *waiting) Tokenize(context.Context, engine.Text) ([]int32, error) {
	m.tokenized++
	return nil, nil
}

func (m *waiting) Generate(ctx context.Context, _ engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	select {
	case <-time.After(m.first):
	case <-ctx.Done():
		return engine.Usage{}, context.Cause(ctx)
	}
	return engine.Usage{Prefill: m.first}, emit(engine.Token{Last: engine.FinishStop})
}

func newAdmitted(first time.Duration, c repository.Config) *admitted {
	return &admitted{&waiting{first: first}, newTextGate(&c, 2), nil}
}

func (a *admitted) run(ctx context.Context) error {
	_, err := a.Generate(ctx, engine.Generation{}, func(engine.Token) error { return nil })
	return err
}

func TestGateBoundsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmitted(time.Second, repository.Config{Queue: repository.Queue{Size: 3}})
		errs := make(chan error, 10)
		for range cap(errs) {
			go func() { errs <- a.run(t.Context()) }()
		}
		synctest.Wait()
		for range 5 { // beside 2 that run and 3 that wait
			select {
			case err := <-errs:
				if outboard.KindOf(err) != outboard.Exhausted {
					t.Errorf("%v", err)
				}
			default:
				t.Fatal("not refused at once")
			}
		}
		for range 5 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if got, want := a.gate.stats(), (TextCounts{Done: 5, RefusedFull: 5}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A client with many generations leaves room for another one's.
func TestGateKeepsRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmitted(time.Second, repository.Config{Queue: repository.Queue{Size: 16}})
		refused := map[string]int{}
		for _, client := range []string{"flood", "victim"} {
			errs := make(chan error, 30)
			for range cap(errs) {
				go func() {
					_, err := a.Generate(t.Context(), engine.Generation{CacheScope: client}, func(engine.Token) error { return nil })
					errs <- err
				}()
			}
			synctest.Wait()
			refused[client] = len(errs)
		}
		if refused["flood"] != 30-2-14 || refused["victim"] != 30-2 {
			t.Errorf("refused: %v", refused)
		}
	})
}

// A generation whose first token can't come in time is refused at once, by its own deadline or the
// model's.
func TestGateRefusesWhatWouldBeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmitted(10*time.Second, repository.Config{Queue: repository.Queue{Timeout: repository.Duration(15 * time.Second)}})
		if err := a.run(t.Context()); err != nil { // from now on the lifetime is known
			t.Fatal(err)
		}
		errs := make(chan error, 3)
		for range cap(errs) { // one waits for a slot, half a lifetime
			go func() { errs <- a.run(t.Context()) }()
		}
		synctest.Wait()
		before := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := a.run(short); outboard.KindOf(err) != outboard.Exhausted || time.Since(before) != 0 {
			t.Errorf("a deadline of 3 s: %v after %v", err, time.Since(before))
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if got, want := a.gate.stats(), (TextCounts{Done: 4, RefusedDeadline: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A conversation is refused before the worker renders it, and a prompt before the worker counts its
// tokens. A text that is no prompt is not refused.
func TestGateRefusesBeforeTheWorkerHasWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmitted(time.Second, repository.Config{Queue: repository.Queue{Size: 1}})
		render := func() error {
			_, err := a.Render(t.Context(), engine.Conversation{Prompt: true})
			return err
		}
		tokenize := func(prompt bool) error {
			_, err := a.Tokenize(t.Context(), engine.Text{Prompt: prompt})
			return err
		}
		if err := errors.Join(render(), tokenize(true)); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 3)
		for range cap(errs) { // two run, and one waits
			go func() { errs <- a.run(t.Context()) }()
		}
		synctest.Wait()
		for _, err := range []error{render(), tokenize(true)} {
			if outboard.KindOf(err) != outboard.Exhausted {
				t.Errorf("a full queue: %v", err)
			}
		}
		if err := tokenize(false); err != nil {
			t.Error(err)
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if got, want := a.gate.stats(), (TextCounts{Done: 3, RefusedFull: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if w := a.TextModel.(*waiting); w.rendered != 1 || w.tokenized != 2 {
			t.Errorf("the worker has rendered %d conversations and tokenized %d texts", w.rendered, w.tokenized)
		}
	})
}

// Long prompts are refused while those before them take longer than the limit, by the tokens that
// are left of them. A short prompt is not, nor one whose state is cached, nor one alone.
func TestGateCountsTokensOfPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admitted{&waiting{first: 200 * time.Second}, newTextGate(&repository.Config{}, 32), nil}
		long := make([]int32, 7000)
		cached := make([]int32, 7000)
		cached[0] = 1
		a.gate.observe(&TextLoad{PerToken: 10 * time.Millisecond, Prefixes: engine.PrefixHashes("", cached, engine.MaxPrefixes)})
		errs := make(chan error, 8)
		generate := func(tokens []int32, first int32) (refusal error) {
			t.Helper()
			prompt := append([]int32{first}, tokens[1:]...)
			go func() {
				_, err := a.Generate(t.Context(), engine.Generation{Prompt: prompt}, func(engine.Token) error { return nil })
				errs <- err
			}()
			synctest.Wait()
			select {
			case refusal = <-errs:
			default:
			}
			return refusal
		}
		for _, c := range []struct {
			name    string
			tokens  []int32
			first   int32
			refused bool
		}{
			{"one alone", long, 2, false},
			{"a second one", long, 3, true},
			{"a short one", long[:20], 4, false},
			{"a cached one", cached, 1, false},
		} {
			if err := generate(c.tokens, c.first); c.refused != (outboard.KindOf(err) == outboard.Exhausted) || !c.refused && err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		time.Sleep(30 * time.Second) // some of the first one is computed
		if err := generate(long, 5); err != nil {
			t.Error(err)
		}
		if got, want := a.gate.stats(), (TextCounts{RefusedDeadline: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if p := &a.gate.prompts; len(p.list) > 0 || p.left > 0 {
			t.Errorf("%d prompts and %v tokens are left", len(p.list), p.left)
		}
	})
}

func TestGateEndsWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmitted(time.Minute, repository.Config{Queue: repository.Queue{Timeout: repository.Duration(time.Second)}})
		before := time.Now()
		if err := a.run(t.Context()); outboard.KindOf(err) != outboard.Exhausted || time.Since(before) != time.Second {
			t.Errorf("%v after %v", err, time.Since(before))
		}
		if got, want := a.gate.stats(), (TextCounts{Late: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestSentPromptsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sentPrompts
		key := nodeContent{"dinghy", "c"}
		ended := s.add(key, engine.Prefixes{1, 2}, 100)
		s.add(key, engine.Prefixes{1, 2}, 20)
		has, tokens := s.recent(key)
		if !has(2) || has(3) || tokens != 120 {
			t.Errorf("%t, %t, %d", has(2), has(3), tokens)
		}
		ended()
		if has, tokens := s.recent(key); !has(2) || tokens != 20 {
			t.Errorf("after one has ended: %t, %d", has(2), tokens)
		}
		if has, _ := s.recent(nodeContent{"dinghy", "other"}); has(1) {
			t.Error("another model has the prefix")
		}
		time.Sleep(2 * reportDelay)
		if has, tokens := s.recent(key); has(1) || tokens != 0 {
			t.Errorf("later: %t, %d", has(1), tokens)
		}
	})
}
