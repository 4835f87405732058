package cli

import (
	"context"
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/worker"
)

// newInternalCommand is the processes that a node starts for itself.
func newInternalCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "internal", Short: "Helper processes of a node", Hidden: true, Args: rootArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// They read no configuration: their node tells them everything.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "probe API", Short: "List this machine's devices as JSON", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return runProbe(cmd.Context(), env, outboard.API(args[0]))
			},
		},
		&cobra.Command{
			Use: "worker", Short: "Serve one session on descriptors 3 and 4", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return runWorker(cmd.Context()) },
		},
	)
	return cmd
}

func runProbe(ctx context.Context, env *Env, api outboard.API) error {
	if api != outboard.OpenCL {
		return usage("%q: this build knows the API %s", api, outboard.OpenCL)
	}
	devices, err := worker.Probe(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(env.Stdout).Encode(devices)
}

// The descriptors that a worker inherits.
const (
	ringDescriptor    = 3
	controlDescriptor = 4
)

func runWorker(ctx context.Context) error {
	return worker.Main(ctx, os.NewFile(ringDescriptor, "ring"), os.NewFile(controlDescriptor, "control"))
}
