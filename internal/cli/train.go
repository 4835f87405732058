package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/internal/train/launch"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// maxTrainRanks is the most ranks of one machine.
const maxTrainRanks = 256

func newTrainCommand(env *Env) *cobra.Command {
	count := 1
	cmd := &cobra.Command{
		Use:   "train [flags] -- PROGRAM [ARGS...]",
		Short: "Run a torch.distributed program as several ranks",
		Long: `Run a torch.distributed program as several ranks.

Starts the program once for each rank, on this machine, with what torch.distributed expects in
the environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). Lines of output carry
the rank. When one rank fails all others are stopped, and the exit status is that of the first.

With the Python package of the repository (pip install ./python) the ranks sum their gradients
by the back end "outboard": their tensors lie in shared memory and are reduced by this command,
outside of Python. Ranks that disagree about a call get an error with both lines of the program
instead of a hang, and so do all when one is lost. Without the package the ranks use whatever
back end the program names.

Each rank computes with an equal share of the processors unless OMP_NUM_THREADS is set.`,
		Example: `  outboard train --ranks 4 -- python3 train.py
  outboard train --ranks 2 -- python3 -m my.training --epochs 3`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name the program to run: outboard train --ranks 2 -- PROGRAM [ARGS...]")
			}
			if count < 1 || count > maxTrainRanks {
				return usage("--ranks %d: want 1 to %d", count, maxTrainRanks)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runTrain(cmd.Context(), env, count, args) },
	}
	cmd.Flags().IntVar(&count, "ranks", 1, "number of ranks")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func runTrain(ctx context.Context, env *Env, count int, args []string) error {
	path, err := findProgram(env, args[0])
	if err != nil {
		return err
	}
	dir, err := newSocketFolder(env)
	if err != nil {
		return err
	}
	defer dir.remove()
	socket := filepath.Join(dir.path, "ranks.sock")
	server, err := ranks.Serve(socket, ranks.Options{Log: slog.New(slog.NewTextHandler(env.Stderr, nil))})
	if err != nil {
		return err
	}
	defer server.Close()
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	err = launch.Run(ctx, launch.Job{
		Path: path, Args: args, Ranks: count, Emit: env.printRankLine,
		Environ: func(rank int) []string { return rankEnviron(env.Environ, rank, count, port, socket) },
	})
	if f, ok := errors.AsType[*launch.Failure](err); ok {
		return &statusError{status: f.Status, err: f}
	}
	return err
}

// printRankLine prints a line of a rank, with the rank in brackets.
func (env *Env) printRankLine(l launch.Line) {
	out := env.Stdout
	if l.Stderr {
		out = env.Stderr
	}
	fmt.Fprintf(out, "[%d] %s\n", l.Rank, l.Text)
}

// freePort returns a TCP port of the loopback that nobody listens on, for the store in which
// torch.distributed's ranks find each other.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// rankEnviron adds to the environment what torch.distributed and our back end for it read.
func rankEnviron(environ []string, rank, count, port int, socket string) []string {
	add := map[string]string{
		"RANK": strconv.Itoa(rank), "LOCAL_RANK": strconv.Itoa(rank),
		"WORLD_SIZE": strconv.Itoa(count), "LOCAL_WORLD_SIZE": strconv.Itoa(count),
		"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": strconv.Itoa(port),
		"OUTBOARD_RANKS_SOCKET": socket, "PYTHONUNBUFFERED": "1",
		"OMP_NUM_THREADS": strconv.Itoa(max(1, runtime.NumCPU()/count)),
	}
	var env []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if name == "OMP_NUM_THREADS" {
			delete(add, name)
		}
		if _, ours := add[name]; !ours {
			env = append(env, v)
		}
	}
	for name, value := range add {
		env = append(env, fmt.Sprintf("%s=%s", name, value))
	}
	return env
}
