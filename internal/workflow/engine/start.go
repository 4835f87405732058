package engine

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
)

// MaxInline is the size of the largest result or input that is kept in the log and read by
// expressions, in bytes.
const MaxInline = 64 << 10

// StartRequest asks for an execution.
type StartRequest struct {
	App, Workflow string
	// Name is the idempotency key of the request: the app has at most one execution of that name,
	// for as long as it is kept. If that is one of another workflow the error's kind is Conflict. An
	// empty Name stands for a new one.
	Name string
	// Input is a JSON value, or bytes if it is no JSON or Type says so. The workflow gets bytes,
	// and inputs larger than MaxInline, as a reference.
	Input []byte
	Type  string
	// Deadline is when the execution is cancelled, zero for never.
	Deadline time.Time

	// version is the version of the app, 0 for the one that is deployed now.
	version int
	parent  ID
	depth   int
	// unique says that the engine has generated the name.
	unique bool
}

var executionName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// Start begins an execution and returns when it is recorded: from then on it will end, whatever
// happens to this node. It returns an error of the kind Busy if there are too many executions. With an
// error the ID, unless it is empty, is that which the execution would have: another Start with its name
// begins the same execution, and may find that it has begun.
func (e *Engine) Start(ctx context.Context, req StartRequest) (ID, error) {
	op := "start " + req.App + "/" + req.Workflow
	if req.Name == "" {
		req.Name, req.unique = newName(time.Now()), true
	} else if !executionName.MatchString(req.Name) {
		return "", outboard.Errorf(outboard.Invalid, op, "name %q: it is made of letters, digits, \"-\", \"_\" and \".\", 128 at most", req.Name)
	}
	if req.App == "" || strings.Contains(req.App, "/") {
		return "", outboard.Errorf(outboard.Invalid, op, "%q is no name of an app", req.App)
	}
	w, version, err := e.opts.Workflows.Workflow(ctx, req.App, req.version, req.Workflow)
	if err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	id := ID(req.App + "/" + req.Name)
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		s := &core.Started{Node: e.opts.Node, Version: version, Workflow: req.Workflow, Deadline: req.Deadline, Parent: string(req.parent), Depth: req.depth}
		err := e.tryStart(ctx, e.newRun(id, w), s, req)
		switch {
		case err == nil:
			e.metrics.started.Inc()
			return id, nil
		case errors.Is(err, errExists):
			if err := e.checkSame(ctx, id, req.Workflow); err != nil {
				return "", fmt.Errorf("%s: %w", op, err)
			}
			return id, nil
		case errors.Is(err, errFull):
			e.metrics.refused.Inc()
			return id, outboard.Errorf(outboard.Busy, op,
				"%d executions run or wait, and no more are taken: try again when some have ended, cancel some, or raise the limit by `outboard up --max-executions`", e.opts.Executions)
		case !errors.Is(err, errStarting):
			return id, fmt.Errorf("%s: %w", op, err)
		}
		if !sleep(ctx, pause) {
			return id, outboard.Errorf(outboard.Unreachable, op, "another request is starting it: %w", ctx.Err())
		}
	}
}

// tryStart starts an execution unless this node or another one runs it already.
func (e *Engine) tryStart(ctx context.Context, r *executor, s *core.Started, req StartRequest) error {
	r.span, r.version, r.depth = trace.SpanContextFromContext(ctx), s.Version, s.Depth
	here, err := e.admit(r, e.opts.Executions)
	switch {
	case errors.Is(err, errClosed):
		return &outboard.Error{Op: "admit", Kind: outboard.Unreachable, Err: err}
	case err != nil:
		return err
	case !here:
		r.stop()
		return e.checkStarted(ctx, r.id)
	}
	if err := e.begin(ctx, r, s, req); err != nil {
		r.detach()
		return err
	}
	return nil
}

// errStarting says that another request is starting the same execution.
var errStarting = errors.New("another caller starts this execution")

// checkStarted returns errExists if the start of an execution is recorded, or else errStarting.
func (e *Engine) checkStarted(ctx context.Context, id ID) error {
	records, err := e.opts.Log.Read(ctx, e.key(id))
	switch {
	case err != nil:
		return err
	case len(records) > 0:
		return errExists
	}
	return errStarting
}

// checkSame returns an error if an execution that exists is of another workflow.
func (e *Engine) checkSame(ctx context.Context, id ID, workflow string) error {
	events, err := e.events(ctx, id)
	switch {
	case outboard.KindOf(err) == outboard.NotFound:
		return nil // it has been purged since
	case err != nil:
		return err
	case events[0].Started.Workflow != workflow:
		return outboard.Errorf(outboard.Conflict, "", "there is an execution %s, of the workflow %s: use another name", id, events[0].Started.Workflow)
	}
	return nil
}

// errExists says that the execution was started before.
var errExists = errors.New("there is such an execution")

// startLimit bounds the wait until a start is acknowledged: a caller learns that the state does
// not accept writes, instead of waiting until it does.
const startLimit = 5 * time.Second

// begin claims an execution, records its start and runs it.
func (e *Engine) begin(ctx context.Context, r *executor, s *core.Started, req StartRequest) error {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	claim := e.opts.Claims.Claim
	if req.unique {
		claim = e.opts.Claims.ClaimNew // reads no records: there are none
	}
	err := claim(limited, r.id)
	if errors.Is(err, ErrClaimed) {
		return e.checkStarted(ctx, r.id)
	}
	if err == nil {
		err = e.recordStart(limited, r, s, req)
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = outboard.Errorf(outboard.Unreachable, "record the start",
			"the pool's state has not acknowledged it within %v: try again later; with a name the execution starts once", startLimit)
	}
	if err != nil {
		// There may be a claim without a record, or a record without an acknowledgement: a takeover
		// resolves both.
		r.detach()
		e.spawn(func() { e.takeover.takeOver(r.id) })
		return err
	}
	if !e.spawn(r.loop) {
		return errClosed
	}
	return nil
}

func (e *Engine) recordStart(ctx context.Context, r *executor, s *core.Started, req StartRequest) error {
	if err := r.storeInput(ctx, s, req); err != nil {
		return err
	}
	r.apply(core.Event{Started: s})
	first := r.recorder.entries[:1]
	err := r.recorder.record(ctx, first)
	if errors.Is(err, state.ErrConflict) {
		return errExists
	}
	return err
}

// storeInput puts the input into the record or, if it is too large or no JSON, saves it as a value.
func (r *executor) storeInput(ctx context.Context, s *core.Started, req StartRequest) error {
	binary := req.Type != "" && !isJSON(req.Type)
	if !binary && len(req.Input) <= MaxInline && (len(req.Input) == 0 || json.Valid(req.Input)) {
		s.Input = req.Input
		return nil
	}
	if !binary && isJSON(req.Type) && !json.Valid(req.Input) {
		return outboard.Errorf(outboard.Invalid, "read the input", "it is no JSON though it says so")
	}
	extent, err := r.e.opts.Values.Put(ctx, r.id, req.Input)
	if err != nil {
		return fmt.Errorf("keep the input: %w", err)
	}
	digest, err := r.e.opts.Values.Save(ctx, r.id, extent)
	if err != nil {
		return fmt.Errorf("save the input: %w", err)
	}
	s.Value = &core.Value{Size: extent.Size, Digest: digest, Type: req.Type}
	r.values.add(core.InputStep, *s.Value, &extent)
	return nil
}

func isJSON(mediaType string) bool {
	kind, _, _ := strings.Cut(mediaType, ";")
	kind = strings.TrimSpace(kind)
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// nameDigits encodes times so that names are in the order of their times.
var nameDigits = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const nameTime = 10 // digits of a name that are its time

func newName(t time.Time) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixMilli())<<14) //nolint:gosec // Times are after 1970.
	return nameDigits.EncodeToString(b[:])[:nameTime] + nonce(4)
}

// nameAt returns when newName generated a name, and false for other names.
func nameAt(name string) (time.Time, bool) {
	if len(name) != nameTime+8 {
		return time.Time{}, false
	}
	b, err := nameDigits.DecodeString(name[:nameTime] + "000")
	if err != nil || len(b) < 8 {
		return time.Time{}, false
	}
	ms := binary.BigEndian.Uint64(b[:8]) >> 14
	return time.UnixMilli(int64(ms)), true //nolint:gosec // 50 bits fit.
}
