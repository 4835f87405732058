package peer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// sent is a message as the receiver decodes it.
func sent[M proto.Message](t *testing.T, m, into M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return into
}

// Requests and replies keep all of their fields.
func TestMessages(t *testing.T) {
	call := engine.FunctionCall{
		Execution: "shop/1", Path: "/do/0/a", App: "shop", Version: 3, Function: "cart", Entry: "handle", Type: "text/plain",
		Meta: map[string]string{"a": "b"}, Body: []byte("body"),
	}
	if diff := cmp.Diff(call, sent(t, stepRequest(&call), new(StepRequest)).call()); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	out := engine.Outcome{Body: []byte("result"), Type: "text/html", Run: engine.Run{
		Node: "harbour", Start: "clone", Began: time.Now(), Queued: 1, Took: 2, Pointer: 3, Copied: 4, Fuel: 5,
		Imports: []engine.Import{{Name: "bucket:seats", Calls: 1, Took: 2, Waited: 3, Bytes: 4}},
	}}
	for name, want := range map[string]error{
		"none":    nil,
		"fault":   &dsl.Error{Type: dsl.ErrorRuntime, Status: 500, Title: "a", Detail: "b", Instance: "c"},
		"failure": outboard.Errorf(outboard.Busy, "", "later"),
	} {
		got, err := sent(t, stepReply(&out, want), new(StepReply)).outcome()
		if diff := cmp.Diff(out, got, cmpopts.EquateApproxTime(0)); diff != "" {
			t.Errorf("%s: outcome (-want +got):\n%s", name, diff)
		}
		if outboard.KindOf(err) != outboard.KindOf(want) || (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
			t.Errorf("%s: got %v", name, err)
		}
		if _, isFault := errors.AsType[*dsl.Error](err); isFault != (name == "fault") {
			t.Errorf("%s: got %T", name, err)
		}
	}
	counts := []Counts{{App: "shop", Version: 2, Name: "cart", Times: []time.Duration{7}, Counts: client.FunctionCounts{
		Calls: 1, Errors: 2, Running: 3, Waiting: 4, Instances: 5, Cold: 6, Cloned: 7, Reset: 8, Fuel: 9,
	}}}
	if diff := cmp.Diff(counts, sent(t, countsMessage(counts), new(CallCounts)).counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	lines := []client.LogLine{{
		Time: time.Now(), Node: "harbour", App: "a", Function: "b", Call: "c", Execution: "d", Step: "e", Stream: "stdout", Text: "f",
		Trigger: "http", Status: 200, Took: 1, Fuel: 2,
	}}
	if diff := cmp.Diff(lines, sent(t, logBatch(lines), new(LogBatch)).lines(), cmpopts.EquateApproxTime(0)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A process with an older program reads why it is refused.
func TestVersion1IsRefused(t *testing.T) {
	_, err := refuseVersion1("Call").Handler(nil, context.Background(), nil, nil)
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v", err)
	}
}

// Without a node no process is reached, and other callers than processes are refused.
func TestNoNode(t *testing.T) {
	c, err := Dial("tea", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadFile(t.Context(), "harbour", "x"); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("got %v", err)
	}
	if err := checkCaller(t.Context(), "tea"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v", err)
	}
}
