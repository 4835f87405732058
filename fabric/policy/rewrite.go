package policy

import (
	"time"

	"google.golang.org/grpc/metadata"
)

type rewriteRules struct{}
type rewriteStep struct{ *rewriteRules }
type responder struct {
	policy *policy
	step   *rewriteStep
}

func (r *rewriteRules) bind(*policy, step, time.Time) step { return &rewriteStep{r} }
func (s *rewriteStep) begin(*Exchange) error               { return nil }
func (s *rewriteStep) responds() bool                      { return false }

// Response changes the metadata of a response as the chain's policies say.
func (c *Chain) Response(x *Exchange, header, trailer metadata.MD) (metadata.MD, metadata.MD, error) {
	return header, trailer, nil
}
func (x *Exchange) encode() error { return nil }
