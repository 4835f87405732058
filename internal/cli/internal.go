package cli

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/worker"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/model/engine/builtin"
	model "github.com/outboard-run/outboard/internal/model/worker"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/timeslice"
)

// newInternalCommand returns the command for the helper processes that a node starts.
func newInternalCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "internal", Short: "Helper processes of a node", Hidden: true, Args: rootArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// Helper processes read no configuration: their node sends it.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { nameProcess(cmd) },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "probe API", Short: "List this machine's devices as JSON", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return runProbe(cmd.Context(), env, outboard.API(args[0]))
			},
		},
		&cobra.Command{
			Use: "calibrate", Short: "Time a few OpenCL calls and print them as JSON", Args: noArgs,
			RunE: func(*cobra.Command, []string) error { return runCalibrationProgram(env) },
		},
		&cobra.Command{
			Use: "calibrate-waits", Short: "Time OpenCL calls that wait and print them as JSON", Args: noArgs,
			RunE: func(*cobra.Command, []string) error { return runCalibrationWaits(env) },
		},
		&cobra.Command{
			Use: "calls", Short: "Carry the node's calls, as it says on descriptor 3", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return runCallsProcess(cmd.Context(), env) },
		},
		&cobra.Command{
			Use: "tenant", Short: "Run a tenant's apps, as the node says on descriptor 3", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return runTenantProcess(cmd.Context(), env) },
		},
		&cobra.Command{
			Use: "model-worker", Short: "Serve one version of a model, as the node says on descriptor 3", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return runModelWorker(cmd.Context()) },
		},
		newRankCommand(),
		&cobra.Command{
			Use: "worker", Short: "Serve one session on descriptors 3 and 4", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return runWorker(cmd.Context()) },
		},
	)
	return cmd
}

// runCallsProcess runs a calls' process. It ignores the signals that end the node, which reach its
// process group too: the node decides when and in which order its helpers end.
func runCallsProcess(ctx context.Context, env *Env) error {
	level := new(slog.LevelVar)
	shortSlices()
	return calls.Run(context.WithoutCancel(ctx), os.NewFile(callsDescriptor, "control"), calls.ProcessOptions{
		Version: thisBuild().Version, Level: level,
		Logger: helperLog(env.Stderr, level),
	})
}

// runTenantProcess runs a tenant's process. It ignores signals as runCallsProcess does.
func runTenantProcess(ctx context.Context, env *Env) error {
	level := new(slog.LevelVar)
	shortSlices()
	return tenant.Run(context.WithoutCancel(ctx), os.NewFile(tenantDescriptor, "node"), tenant.ProcessOptions{
		Version: thisBuild().Version, Level: level,
		Logger: helperLog(env.Stderr, level),
	})
}

// modelDescriptor is the socket to the node that a model's process inherits.
const modelDescriptor = 3

// runModelWorker runs a model's worker. It ignores signals as runCallsProcess does.
func runModelWorker(ctx context.Context) error {
	longSlices()
	var engines builtin.Engines
	return model.Main(context.WithoutCancel(ctx), os.NewFile(modelDescriptor, "node"), model.ProcessOptions{
		Engines: engines.List(), Library: engines.SetLibrary,
	})
}

// shortSlices and longSlices set the time slices of this process: short ones for short requests of
// several users, in a node and its helpers; long ones for computation, in workers of devices and of
// models. A kernel without such slices, or a container that forbids them, keeps its own.
func shortSlices() { _ = timeslice.Set(timeslice.Short) }

func longSlices() { _ = timeslice.Set(0) }

// closeInheritedOnExec keeps the processes that this one starts, some of which execute foreign code,
// from inheriting descriptors that it has inherited beyond the standard ones. Kernels before Linux
// 5.11 refuse it.
func closeInheritedOnExec() {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// helperLog returns a log of JSON lines that the node copies into its own log. Durations are
// formatted as in the node's own lines.
func helperLog(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}))
}

// Descriptors that the calls' and tenants' processes inherit.
const (
	callsDescriptor  = 3
	tenantDescriptor = 3
)

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

func runWorker(ctx context.Context) error {
	longSlices()
	return worker.Main(ctx)
}
