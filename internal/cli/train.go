package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/internal/train/launch"
	"github.com/outboard-run/outboard/internal/train/ranks"
	"github.com/outboard-run/outboard/python"
)

// maxTrainRanks bounds the ranks of one machine.
const maxTrainRanks = 256

func newTrainCommand(env *Env) *cobra.Command {
	var opts trainOptions
	cmd := &cobra.Command{
		Use:   "train [flags] -- PROGRAM [ARGS...] | JOB.yaml",
		Short: "Run a torch.distributed program as several ranks, here or across the pool",
		Long: `Run a torch.distributed program as several ranks.

Starts the program once for each rank, with what torch.distributed expects in the environment
(RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Lines of output carry the rank. When one
rank fails all others are stopped, and the exit status is that of the first.

Without --device the ranks run on this machine. With it they run on the nodes whose devices match,
as a job: all devices are leased together or not at all, in the pool's queue, and the folder of
the script travels with the job. A node runs ranks only if its operator allows it
(` + "`outboard up --jobs confined`" + `). When a node is lost the ranks start again on the devices that
are there. Interrupting the command ends the job; --detach leaves it running.

A job can also be described in a file (docs/training.md): ` + "`outboard train JOB.yaml`" + `. If the
file has a plan, a job whose stages have no room is refused before devices are leased.

The ranks sum their gradients by the back end "outboard", a Python package that comes with this
program: their tensors lie in shared memory and are reduced outside of Python. Ranks that disagree
about a call get an error with both lines of the program instead of a hang, and so do all when one
is lost. A program that names another back end uses that.

--offload bounds the memory of what each rank saves for its backward pass: the rest lies in shared
memory of the host or in a file until it is used, by a plan of the node from measured times.

--profile measures the layers of the model, and where the time and the memory of a pass go: tables
are printed at the end, and ` + "`outboard plan train`" + ` plans by the file. The ranks of all nodes send
theirs. With -o json the tables are JSON on the standard output, and the ranks' lines go to the
standard error.

Each rank computes with an equal share of the processors unless OMP_NUM_THREADS is set. With
--threads auto it measures steps with other numbers of threads, keeps the best, and measures again
when the steps take another time; a sum's last bits depend on the number.`,
		Example: `  outboard train --ranks 4 -- python3 train.py
  outboard train --ranks 4 --device type=cpu -- python3 train.py --epochs 3
  outboard train --ranks 8 --ranks-per-device 4 --min-ranks 4 --device node=harbour --detach -- python3 train.py
  outboard train --ranks 4 --device type=cpu --gradients topk=0.01 -- python3 train.py
  outboard train --ranks 2 --offload device=512MiB,disk=20GiB --why -- python3 train.py
  outboard train --ranks 2 --threads auto --why -- python3 train.py
  outboard train --ranks 2 --stage-limit 15m -- python3 train.py
  outboard train --ranks 2 --device type=cpu --stage-limit 15m,elsewhere -- python3 train.py
  outboard train --ranks 2 --profile profile.json -- python3 train.py
  outboard train job.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name the program to run: outboard train --ranks 2 -- PROGRAM [ARGS...]")
			}
			if isJobFile(args[0]) && cmd.ArgsLenAtDash() < 0 {
				if err := checkFileFlags(cmd.LocalFlags(), args); err != nil {
					return err
				}
			}
			return opts.validate(cmd.Flags())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if isJobFile(args[0]) && cmd.ArgsLenAtDash() < 0 {
				return runTrainFile(cmd.Context(), env, &opts, args[0])
			}
			if opts.pooled {
				return runPoolTrain(cmd.Context(), env, &opts, args)
			}
			return runTrain(cmd.Context(), env, &opts, args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.Flags().SetInterspersed(false)
	complete(cmd, "device", env.completeSelector)
	complete(cmd, "output", completeFormat)
	complete(cmd, "gradients", completeWords("plain", "fp16", "topk=0.01", "loss=0.05", "loss=0.05,datagrams", "store"))
	complete(cmd, "threads", completeWords("auto"))
	complete(cmd, "stage-limit", completeWords("15m", "15m,elsewhere"))
	complete(cmd, "dataset", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return env.firstArg(datasetWords)(cmd, nil, typed)
	})
	return cmd
}

// Names in the folder of ranks on this machine: the server's socket, and the Python package.
const (
	ranksSocket = "ranks.sock"
	packagesDir = "python"
)

func runTrain(ctx context.Context, env *Env, opts *trainOptions, args []string) error {
	count := opts.ranks
	path, err := findProgram(env, args[0])
	if err != nil {
		return err
	}
	dir, err := newSocketFolder(env)
	if err != nil {
		return err
	}
	defer dir.remove()
	socket := filepath.Join(dir.path, ranksSocket)
	resources, err := opts.resources().Check()
	if err != nil {
		return err
	}
	var decisions decisions
	var profiles rankProfiles
	server, err := ranks.Serve(socket, ranks.Options{
		Log: slog.New(slog.NewTextHandler(env.Stderr, nil)), Decided: decisions.add, StageLimit: resources.Limit(), Ranks: count, Profile: profiles.keep,
	})
	if err != nil {
		return err
	}
	defer server.Close()
	port, err := launch.StorePort(ctx)
	if err != nil {
		return err
	}
	if err := python.Extract(filepath.Join(dir.path, packagesDir)); err != nil {
		return err
	}
	if err := resources.CheckRoom(os.TempDir(), count); err != nil {
		return fmt.Errorf("--offload: %w", err)
	}
	environ := env.Environ
	if opts.profile != "" {
		if opts.profile, err = prepareProfile(opts.profile); err != nil {
			return err
		}
		environ = append(slices.Clone(environ), ranks.ProfileVariable+"=1")
	}
	err = launch.Run(ctx, launch.Job{
		Path: path, Args: args, Ranks: count, Continues: server.Continues, Ended: server.Ended, LeftBefore: server.LeftBefore,
		Emit: func(l launch.Line) { env.printRankLine(l, opts.output == "json") },
		Environ: func(rank int) []string {
			return rankEnviron(environ, resources, rank, count, port, dir.path)
		},
	})
	if opts.why {
		decisions.print(env)
	}
	if f, ok := errors.AsType[*launch.Failure](err); ok {
		return &statusError{status: f.Status, err: f}
	}
	if err == nil && opts.profile != "" {
		return profiles.finish(env, opts.profile, opts.output)
	}
	return err
}

// printRankLine prints a line of a rank, with the rank in brackets. Where the standard output has
// JSON, all lines go to the standard error.
func (env *Env) printRankLine(l launch.Line, asJSON bool) {
	out := env.Stdout
	if l.Stderr || asJSON {
		out = env.Stderr
	}
	fmt.Fprintf(out, "[%d] %s\n", l.Rank, l.Text)
}

// rankEnviron adds to the environment what torch.distributed and our back end for it read.
func rankEnviron(environ []string, resources launch.Resources, rank, count, port int, dir string) []string {
	packages := filepath.Join(dir, packagesDir)
	add := map[string]string{
		"RANK": strconv.Itoa(rank), "LOCAL_RANK": strconv.Itoa(rank),
		"WORLD_SIZE": strconv.Itoa(count), "LOCAL_WORLD_SIZE": strconv.Itoa(count),
		"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": strconv.Itoa(port),
		"OUTBOARD_RANKS_SOCKET": filepath.Join(dir, ranksSocket), "PYTHONUNBUFFERED": "1",
	}
	maps.Copy(add, resources.Environ(runtime.NumCPU(), count))
	var env []string
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if name == "PYTHONPATH" && value != "" {
			packages = value + string(filepath.ListSeparator) + packages // the user's comes first
			continue
		}
		if name == "OMP_NUM_THREADS" && resources.Threads == "" {
			delete(add, name)
		}
		if _, ours := add[name]; !ours {
			env = append(env, v)
		}
	}
	add["PYTHONPATH"] = packages
	for name, value := range add {
		env = append(env, fmt.Sprintf("%s=%s", name, value))
	}
	return env
}
