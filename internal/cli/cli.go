// Package cli is the command line of Outboard: one file per verb.
//
// A verb is a constructor newVerbCommand(env), an options struct that owns its
// flags, and a plain function runVerb(ctx, env, opts, args) that does the work
// and that tests call. Data goes to standard output and words to standard error;
// an error is one line that says what to do next.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/opencl/driver"
)

// Env is what a command sees of the process that it runs in.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Environ is the environment, "KEY=value".
	Environ []string
	// Terminal says that Stderr is a terminal, where progress is welcome.
	Terminal bool
	// Helper is the command that runs a helper process of a node; its name
	// ("probe", "worker") and arguments follow. Empty means this program's own
	// `internal` verb.
	Helper []string
	// Vendors puts the driver library below a folder and returns what a program
	// needs as OCL_ICD_VENDORS. Process sets the embedded library.
	Vendors func(dir string) (string, error)

	config settings
}

// Main runs the command line of this process and returns its exit status.
func Main() int { return Process().Main(os.Args[1:]) }

// Process is the environment of this process.
func Process() *Env {
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Environ:  os.Environ(),
		Terminal: term.IsTerminal(int(os.Stderr.Fd())),
		Vendors:  driver.Extract,
	}
}

// Main runs one command until it ends or a signal ends it, and returns its exit
// status.
func (env *Env) Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return env.Run(ctx, args)
}

// Run runs one command and returns its exit status.
func (env *Env) Run(ctx context.Context, args []string) int {
	root := newRootCommand(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if text := message(err); text != "" {
		fmt.Fprintf(env.Stderr, "outboard: %s\n", text)
	}
	return exitStatus(ctx, err)
}

func (env *Env) getenv(key string) string {
	// The last one wins, as in a shell.
	for _, variable := range slices.Backward(env.Environ) {
		if v, ok := strings.CutPrefix(variable, key+"="); ok {
			return v
		}
	}
	return ""
}

// client returns a client of the node that the command line names.
func (env *Env) client() *client.Client { return &client.Client{Data: env.config.data} }

func newRootCommand(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "outboard",
		Short: "One pool of the accelerators that many machines own",
		Long: `Outboard lends the accelerators of many machines to programs that run on others.

Start a node on every machine with ` + "`outboard up`" + `, then run any OpenCL program with
` + "`outboard run -- PROGRAM`" + `: it finds the pool's device as if it were built in.`,
		Example: `  outboard up                                     # on the machine with the device
  outboard token                                  # there: prints a joining token
  outboard up --join HOST:7433 --token TOKEN      # on another machine
  outboard run -- clinfo                          # there: uses the first machine's device`,
		Args:          rootArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SuggestionsMinimumDistance = 2
	env.rootFlags(root)
	root.AddCommand(commands(env)...)
	return root
}

// rootFlags are those of all commands.
func (env *Env) rootFlags(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&env.config.data, "data", client.DefaultData(), "folder of the node: its state and its socket")
	root.PersistentFlags().StringVar(&env.config.file, "config", "", "configuration file (default "+defaultConfigFile(env)+" if it is there)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return env.config.resolve(env, cmd.Flags()) }
	_ = root.MarkPersistentFlagDirname("data")            // it is there
	_ = root.MarkPersistentFlagFilename("config", "yaml") // it is there
}

func commands(env *Env) []*cobra.Command {
	return []*cobra.Command{
		newUpCommand(env),
		newDownCommand(env),
		newTokenCommand(env),
		newNodesCommand(env),
		newDevicesCommand(env),
		newLeasesCommand(env),
		newSessionsCommand(env),
		newRunCommand(env),
		newServicesCommand(env),
		newEndpointsCommand(env),
		newPoliciesCommand(env),
		newPolicyCommand(env),
		newCallsCommand(env),
		newUpgradeCommand(env),
		newDeployCommand(env),
		newRollbackCommand(env),
		newAppsCommand(env),
		newFunctionsCommand(env),
		newWorkflowsCommand(env),
		newRemoveCommand(env),
		newInvokeCommand(env),
		newRunWorkflowCommand(env),
		newExecutionsCommand(env),
		newExecutionCommand(env),
		newCancelCommand(env),
		newLogsCommand(env),
		newPublishCommand(env),
		newArtifactsCommand(env),
		newPushCommand(env),
		newPullCommand(env),
		newNewCommand(env),
		newConfigCommand(env),
		newVersionCommand(env),
		newInternalCommand(env),
		newExitStatusTopic(),
	}
}

func rootArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean %q? ", near[0])
	}
	return usage("%q is no command; %ssee `outboard --help`", args[0], hint)
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%q: %s takes no arguments; see `%s --help`", args[0], cmd.Name(), cmd.CommandPath())
	}
	return nil
}
