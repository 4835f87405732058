package oip

import (
	"strconv"
	"testing"

	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// Requests of one sequence follow each other, those of others and of none do not wait for them, and
// what has ended is forgotten.
func TestSequenceOrder(t *testing.T) {
	of := func(id string) *inference.ModelInferRequest {
		q := &inference.ModelInferRequest{}
		if id != "" {
			q.Parameters = map[string]*inference.InferParameter{"sequence_id": {ParameterChoice: &inference.InferParameter_StringParam{StringParam: id}}}
		}
		return q
	}
	order := sequenceOrder{}
	before, first := order.join(of("a"))
	if before != nil {
		t.Error("the first request waits")
	}
	before, second := order.join(of("a"))
	if before != first {
		t.Error("the second request does not wait for the first")
	}
	for _, id := range []string{"b", ""} {
		if before, _ := order.join(of(id)); before != nil {
			t.Errorf("a request of sequence %q waits", id)
		}
	}
	close(first)
	before.wait(t.Context())
	close(second)
	for i := range 100 {
		_, own := order.join(of(strconv.Itoa(i)))
		close(own)
	}
	if len(order) != 2 { // "b" is under way, and the last one was not there when the others were counted
		t.Errorf("%d sequences are kept", len(order))
	}
}
