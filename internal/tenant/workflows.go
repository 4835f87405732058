package tenant

import (
	"context"
	"fmt"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// workflows has the workflows of all versions: it implements engine.Workflows.
type workflows struct{ *Tenant }

// Workflow implements engine.Workflows.
func (w workflows) Workflow(ctx context.Context, app string, number int, name string) (*dsl.Workflow, int, error) {
	v, err := w.versionOf(ctx, app, number)
	if err != nil {
		return nil, 0, err
	}
	defer w.ended(v)
	found := v.workflows[name]
	if found == nil {
		return nil, 0, fmt.Errorf("app %s has no workflow %q, it has %s: %w", app, name, list(v.workflows), engine.ErrNotFound)
	}
	return found, v.number, nil
}
