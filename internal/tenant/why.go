package tenant

import (
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// why explains where an execution's steps ran.
func (t *Tenant) why(*engine.Execution) []client.Reason { return nil }
