package remote

import (
	"context"
	"testing"

	"github.com/outboard-run/outboard/internal/model/serve"
)

// lastRequest keeps the request that it executed last.
type lastRequest struct {
	Models
	request *serve.Request
}

func (l *lastRequest) Infer(_ context.Context, r *serve.Request) (*serve.Response, error) {
	l.request = r
	return &serve.Response{}, nil
}

// The node that executes a request knows its sequence, and nothing of one where there is none.
func TestSequencesCrossNodes(t *testing.T) {
	for _, want := range []serve.Sequence{{}, {ID: "7", Client: "key/a", Start: true}, {ID: "x", End: true}} {
		there := &lastRequest{}
		if _, err := (&Server{Models: there}).infer(t.Context(), newInferRequest(&serve.Request{Model: "m", Sequence: want, Alone: want.End})); err != nil {
			t.Fatal(err)
		}
		if there.request.Sequence != want || there.request.Alone != want.End || !there.request.Local {
			t.Errorf("%+v became %+v", want, there.request)
		}
	}
}
