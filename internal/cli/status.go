package cli

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

type statusOptions struct{ output format }

func newStatusCommand(env *Env) *cobra.Command {
	var opts statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the pool on one screen: nodes, devices, leases, apps, models, calls, problems",
		Long: `Show the pool on one screen, as this node sees it: nodes, devices, their leases and the requests
that wait for them, apps and the nodes that serve them, models and their states, calls of this
node's programs, and below PROBLEMS each thing that is wrong, with the command that repairs or
explains it.

The exit status is 0 where there are no problems, else 1: the command can be a health check.`,
		Example: `  outboard status
  outboard status -o json | jq .problems`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runStatus(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

// poolStatus is the pool as one node sees it.
type poolStatus struct {
	Node    client.Status    `json:"node"`
	Nodes   []outboard.Node  `json:"nodes"`
	Devices []client.Device  `json:"devices"`
	Leases  []outboard.Lease `json:"leases"`
	// Waiting is client.Status's, beside the leases.
	Waiting  []client.QueuedRequest `json:"waiting"`
	Apps     []client.App           `json:"apps"`
	Models   []client.Model         `json:"models"`
	Calls    []client.Calls         `json:"calls"`
	Services []client.Service       `json:"services"`
	Problems []statusProblem        `json:"problems"`
}

// statusProblem is a problem in the pool.
type statusProblem struct {
	// Subject is the node, app or service that has the problem.
	Subject string `json:"subject"`
	Text    string `json:"text"`
	// Remedy is the advice for the user.
	Remedy string `json:"remedy"`
}

func runStatus(ctx context.Context, env *Env, opts statusOptions) error {
	s, err := readStatus(ctx, env.client())
	if err != nil {
		return err
	}
	if opts.output == "json" {
		err = opts.output.print(env, s, nil, nil)
	} else {
		err = s.write(env.Stdout, time.Now())
	}
	if err == nil && len(s.Problems) > 0 {
		return &statusError{status: statusOther}
	}
	return err
}

// readStatus requests every part of the status from the node concurrently. If the node does not
// answer at all, it returns an error; a part that fails becomes a problem of the status.
func readStatus(ctx context.Context, c *client.Client) (*poolStatus, error) {
	var s poolStatus
	var err error
	if s.Node, err = c.Status(ctx); err != nil {
		return nil, err
	}
	s.Waiting, s.Node.Waiting = append([]client.QueuedRequest{}, s.Node.Waiting...), nil
	var parts sync.WaitGroup
	failed := make([]statusProblem, 0, statusParts)
	var mu sync.Mutex
	read := func(subject string, part func() error) {
		parts.Go(func() {
			if err := part(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, statusProblem{Subject: subject, Text: oneLine(err.Error()), Remedy: "see the log of this node, `outboard up`"})
			}
		})
	}
	read("nodes", func() (err error) { s.Nodes, err = c.Nodes(ctx); return err })
	read("devices", func() (err error) { s.Devices, err = c.Devices(ctx, outboard.Selector{}); return err })
	read("leases", func() (err error) { s.Leases, err = c.Leases(ctx); return err })
	read("apps", func() (err error) { s.Apps, err = c.AppsOnNodes(ctx); return err })
	read("models", func() (err error) { s.Models, err = c.Models(ctx); return err })
	read("calls", func() error {
		calls, err := c.Calls(ctx)
		s.Calls = slices.DeleteFunc(calls, func(c client.Calls) bool { return isSystemService(c.Service) })
		return err
	})
	read("services", func() error {
		services, err := c.Services(ctx)
		s.Services = slices.DeleteFunc(services, func(v client.Service) bool { return isSystemService(v.Name) })
		return err
	})
	parts.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s.Problems = slices.Concat(failed, s.findProblems()); s.Problems == nil {
		s.Problems = []statusProblem{} // [] in JSON, not null
	}
	return &s, nil
}

// isSystemService reports whether a service is the pool's own: no program calls or serves it.
func isSystemService(name string) bool {
	return name == "outboard" || strings.HasPrefix(name, "outboard.")
}

// statusParts is the number of requests for a status.
const statusParts = 7
