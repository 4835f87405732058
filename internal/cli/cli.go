// Package cli is the command line of Outboard: one file per noun or top-level verb.
//
// A command is a constructor newNameCommand(env), an options struct that owns its flags, and a
// plain function runName(ctx, env, opts, args) that does the work and that tests call. Names follow
// one scheme, docs/design/0009-commands.md, and addCommands has the whole tree. Data goes to
// standard output and messages to standard error; an error is one line that names the remedy.
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
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/opencl/driver"
)

// Env is the part of the process that a command uses: streams, environment, configuration.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Environ is the environment, "KEY=value".
	Environ []string
	// Terminal reports whether Stderr is a terminal, which shows progress.
	Terminal bool
	// Helper is the command that runs a helper process of a node; the process's name ("probe",
	// "worker") and arguments follow. Empty means this program's own `internal` verb.
	Helper []string
	// Vendors writes the driver library below a folder and returns the value of OCL_ICD_VENDORS for
	// a program. Process sets the embedded library.
	Vendors func(dir string) (string, error)
	// RootFolder is for the files of root's commands where the node belongs to another user.
	RootFolder string

	config settings
	// background says that this process was started to ignore SIGINT.
	background bool
}

// Main runs the command line of this process and returns its exit status.
func Main() int { return Process().Main(os.Args[1:]) }

// Process returns the environment of this process.
func Process() *Env {
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Environ:    os.Environ(),
		Terminal:   term.IsTerminal(int(os.Stderr.Fd())),
		Vendors:    driver.Extract,
		RootFolder: rootFolder,
	}
}

// Main runs one command until it returns or a signal ends it, and returns its exit status.
func (env *Env) Main(args []string) int {
	env.background = signal.Ignored(os.Interrupt)
	// SIGINT ends a node that a script has started in the background, too.
	ctx, stop := signal.NotifyContext(context.Background(), append(withoutIgnored(syscall.SIGTERM, syscall.SIGHUP), os.Interrupt)...)
	defer stop()
	return env.Run(ctx, args)
}

// withoutIgnored returns the signals, without those that this process was started to ignore, as
// nohup has it ignore SIGHUP: a handler would make them end this process and its program.
func withoutIgnored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}

// ignoreKeys makes this process, and the programs that it starts, ignore the signals of a terminal's
// keys if the process was started to ignore them: as a shell does for a command in the background of
// a script.
func (env *Env) ignoreKeys() {
	if env.background {
		signal.Ignore(os.Interrupt, syscall.SIGQUIT)
	}
}

// Run runs one command and returns its exit status.
func (env *Env) Run(ctx context.Context, args []string) int {
	root := newRootCommand(env)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		root.SetOut(completionWriter{env.Stdout})
	}
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if text := message(err); text != "" {
		fmt.Fprintf(env.Stderr, "outboard: %s\n", text)
	}
	return exitStatus(ctx, err)
}

func (env *Env) getenv(key string) string {
	// The last variable of a name wins, as in a shell.
	for _, variable := range slices.Backward(env.Environ) {
		if v, ok := strings.CutPrefix(variable, key+"="); ok {
			return v
		}
	}
	return ""
}

// client returns a client of the node that the command line names.
func (env *Env) client() *client.Client { return &client.Client{Data: env.config.data} }

// Commands returns the whole command tree, for manual pages and completions.
func Commands() *cobra.Command { return newRootCommand(&Env{}) }

func newRootCommand(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "outboard",
		Short: "One pool of the accelerators, functions and services of many machines",
		Long: `Outboard joins machines into one pool. A program on one machine uses the accelerator of
another, functions and workflows run wherever there is room, programs call each other through
their nodes, models answer from the node that suits them, and training jobs use several devices.

A plural noun lists (` + "`outboard nodes`" + `), and what can be done with one of them is a verb behind
it (` + "`outboard apps remove NAME`" + `). Every list takes -o json.`,
		Example: `  outboard up                                     # on the machine with the device
  outboard token                                  # there: prints a joining token
  outboard up --join HOST:7433 --token TOKEN      # on another machine
  outboard run -- clinfo                          # there: uses the first machine's device
  outboard status                                 # the pool on one screen`,
		Args:          rootArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	env.addRootFlags(root)
	addCommands(root, env)
	return root
}

// addRootFlags adds the flags that all commands have.
func (env *Env) addRootFlags(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&env.config.data, "data", client.DefaultData(), "folder of the node: its state and its socket")
	root.PersistentFlags().StringVar(&env.config.file, "config", "", "configuration file (default "+defaultConfigFile(env)+" if it is there)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFlagValues(cmd); err != nil {
			return err
		}
		return env.config.resolve(env, cmd.Flags())
	}
	_ = root.MarkPersistentFlagDirname("data")            // the flag exists
	_ = root.MarkPersistentFlagFilename("config", "yaml") // the flag exists
}

// checkFlagValues refuses a flag whose value is another flag of the command: `--data --help` names no
// folder, its value is missing.
func checkFlagValues(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		name, isFlag := strings.CutPrefix(f.Value.String(), "--")
		if name, _, _ = strings.Cut(name, "="); err == nil && isFlag && name != "" && cmd.Flags().Lookup(name) != nil {
			err = usage("flag needs an argument: --%s; %q is a flag itself; see `%s --help`", f.Name, f.Value.String(), cmd.CommandPath())
		}
	})
	return err
}

// rootArgs refuses arguments of a command that only has commands below it.
func rootArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return nil
}

// unknownCommand returns the error of a word that is no command below cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	return usage("%q is no command; %ssee `%s --help`", word, suggestion(cmd, word), cmd.CommandPath())
}
