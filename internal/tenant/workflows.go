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
		return nil, 0, absentError(fmt.Sprintf("app %s has no workflow %q: it has %s", app, name, list(v.workflows)))
	}
	return found, v.number, nil
}

// An absentError is engine.ErrNotFound, in words that name what there is.
type absentError string

func (e absentError) Error() string { return string(e) }

// Is makes it engine.ErrNotFound.
func (absentError) Is(err error) bool { return err == engine.ErrNotFound }
