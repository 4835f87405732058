package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/train/job"
	"github.com/outboard-run/outboard/internal/train/launch"
)

// trainOptions are the flags of `outboard train`.
type trainOptions struct {
	ranks     int
	device    outboard.Selector
	memory    outboard.Bytes
	perDevice int
	minRanks  int
	restarts  int
	name      string
	files     string
	data      string
	stream    bool
	gradients string
	offload   string
	threads   string
	limit     string
	why       bool
	env       []string
	detach    bool
	profile   string
	output    format

	pooled bool // --device is set: the ranks run in the pool
}

func (o *trainOptions) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&o.ranks, "ranks", 1, "number of ranks")
	flags.Var(&o.device, "device", "run the ranks on the nodes of devices that match `SELECTOR`, one leased device each")
	flags.Var(&o.memory, "memory", "with --device: `SIZE` of device memory that each lease gets, beside other leases; 0 means the whole device")
	flags.IntVar(&o.perDevice, "ranks-per-device", 1, "with --device: ranks that share a device")
	flags.IntVar(&o.minRanks, "min-ranks", 0, "with --device: go on with so few ranks when nodes are lost (default all: wait for devices)")
	flags.IntVar(&o.restarts, "restarts", 0, "with --device: starts of the ranks again after the loss of a node (default 10)")
	flags.StringVar(&o.name, "job-name", "", "with --device: name of the job (default its program)")
	flags.StringVar(&o.files, "files", "", "with --device: `FOLDER` that travels with the job (default that of the script)")
	flags.StringVar(&o.data, "dataset", "", "with --device: `NAME` of a dataset, whose folder the ranks find in OUTBOARD_DATA")
	flags.BoolVar(&o.stream, "stream", false, "with --dataset: the ranks read its files into memory as they need them (Python: outboard.data), and start at once")
	flags.StringVar(&o.gradients, "gradients", "", "with --device: `HOW` sums of gradients travel between nodes: plain, fp16, topk=FRACTION, loss=FRACTION, loss=FRACTION,datagrams or store (default plain)")
	flags.StringVar(&o.offload, "offload", "", "bounds what each rank saves for its backward pass: `SIZES` such as device=512MiB,host=2GiB,disk=20GiB; the rest lies on the host and the disk in between")
	flags.StringVar(&o.threads, "threads", "", "`NUMBER` of threads that each rank computes with, or auto: by measured steps (default an equal share of the processors)")
	flags.StringVar(&o.limit, "stage-limit", "", "`TIME` such as 15m that the process of a pipeline's stage may run: then its state is saved between two steps, and another process continues, with --device and TIME,elsewhere on another node that has a free device")
	flags.BoolVar(&o.why, "why", false, "without --device: say at the end what was decided for the ranks (with it: outboard jobs show JOB --why)")
	flags.StringArrayVar(&o.env, "env", nil, "with --device: `NAME=VALUE` in the environment of the ranks, or NAME for this one's value")
	flags.StringVar(&o.profile, "profile", "", "write the times and sizes of the model's layers, and the memory of a pass, into `FILE`")
	o.output.addFlag(flags)
	flags.BoolVar(&o.detach, "detach", false, "with --device: print the job's ID and return")
}

func (o *trainOptions) resources() launch.Resources {
	return launch.Resources{Threads: o.threads, Offload: o.offload, StageLimit: o.limit}
}

// poolFlags are the flags that need --device.
var poolFlags = []string{"memory", "ranks-per-device", "min-ranks", "restarts", "job-name", "files", "dataset", "stream", "gradients", "env", "detach"}

// checkFileFlags returns an error for a flag of the command that the job's file has a member for: only
// one of them could count.
func checkFileFlags(flags *pflag.FlagSet, args []string) (err error) {
	if len(args) > 1 {
		return usage("%q: flags stand before the job's file: outboard train [flags] %s", args[1], args[0])
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "profile" && f.Name != "output" && f.Name != "help" {
			err = usage("--%s: set it in %s; with a job's file only --profile and -o are flags", f.Name, args[0])
		}
	})
	return err
}

func (o *trainOptions) validate(flags *pflag.FlagSet) error {
	o.pooled = flags.Changed("device")
	if o.ranks < 1 || o.ranks > maxTrainRanks {
		return usage("--ranks %d: want 1 to %d", o.ranks, maxTrainRanks)
	}
	if o.output == "json" && o.profile == "" {
		return usage("-o json is for the tables of --profile FILE")
	}
	if _, err := o.resources().Check(); err != nil {
		return usage("--%w", err)
	}
	if o.resources().Elsewhere() && !o.pooled {
		return usage("--stage-limit %s needs --device SELECTOR: without it there is no other node", o.limit)
	}
	if o.why && o.pooled {
		return usage("--why is for ranks on this machine: ask for that of a job by `outboard jobs show JOB --why`")
	}
	for _, name := range poolFlags {
		if flags.Changed(name) && !o.pooled {
			return usage("--%s needs --device SELECTOR, with which the ranks run in the pool; without it they run on this machine", name)
		}
	}
	return nil
}

// spec returns the job that the flags and arguments describe. The folder of its script is packed.
func (o *trainOptions) spec(env *Env, args []string) (client.JobSpec, []byte, error) {
	s := client.JobSpec{
		Name: o.name, Ranks: o.ranks, PerDevice: o.perDevice, MinRanks: o.minRanks, Selector: o.device, Memory: o.memory,
		Data: o.data, Stream: o.stream, Gradients: o.gradients, Offload: o.offload, Threads: o.threads, StageLimit: o.limit, Profile: o.profile != "", Args: append([]string(nil), args...), Restarts: o.restarts, Detach: o.detach, Env: map[string]string{},
	}
	for _, v := range o.env {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			value = env.getenv(name)
		}
		s.Env[name] = value
	}
	folder, err := jobFolder(o.files, s.Args)
	if err != nil || folder == "" {
		return s, nil, err
	}
	archive, err := job.Pack(folder)
	return s, archive, err
}

// jobFolder returns the folder that is sent with a job: the named one, or that of the first
// argument that is a file or, behind -m, a Python module of the current folder; "" for none. It
// rewrites arguments that are paths in it.
func jobFolder(named string, args []string) (string, error) {
	folder := named
	for i, a := range args[1:] {
		if folder != "" {
			break
		}
		if info, err := os.Stat(a); err == nil && info.Mode().IsRegular() {
			folder = filepath.Dir(a)
		} else if args[i] == "-m" && isModule(a) {
			folder = "."
		}
	}
	if folder == "" {
		return "", nil
	}
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(absolute); err != nil || !info.IsDir() {
		return "", usage("--files %s: want a folder", folder)
	}
	for i, a := range args {
		path, err := filepath.Abs(a)
		if _, missing := os.Stat(a); i == 0 && !strings.Contains(a, "/") || err != nil || missing != nil {
			continue
		}
		if rel, err := filepath.Rel(absolute, path); err == nil && filepath.IsLocal(rel) && rel != "." {
			if !job.LeadsInto(absolute, path) {
				return "", usage("%s: it is a link out of %s, the folder that is sent with the job: name the file that it leads to", a, absolute)
			}
			if args[i] = rel; i == 0 {
				args[i] = "./" + rel
			}
		}
	}
	return absolute, nil
}

// isModule reports whether the current folder has a Python module or package with a name.
func isModule(name string) bool {
	path := filepath.FromSlash(strings.ReplaceAll(name, ".", "/"))
	if !filepath.IsLocal(path) {
		return false
	}
	_, err := os.Stat(path + ".py")
	info, notFolder := os.Stat(path)
	return err == nil || notFolder == nil && info.IsDir()
}

// runPoolTrain submits a job and, unless it is detached, prints its lines until it ends.
func runPoolTrain(ctx context.Context, env *Env, opts *trainOptions, args []string) error {
	spec, archive, err := opts.spec(env, args)
	if err != nil {
		return err
	}
	return submitJob(ctx, env, opts, &spec, archive)
}

// submitJob submits a job, prints its lines until it ends, and then its profile if opts ask for one.
func submitJob(ctx context.Context, env *Env, opts *trainOptions, spec *client.JobSpec, archive []byte) (err error) {
	if spec.Profile = opts.profile != ""; spec.Profile {
		if opts.profile, err = prepareProfile(opts.profile); err != nil {
			return err
		}
	}
	if len(archive) > 0 {
		sum := sha256.Sum256(archive)
		spec.Files = "sha256:" + hex.EncodeToString(sum[:])
		if _, err := env.client().PutArtifact(ctx, spec.Files, "", bytes.NewReader(archive)); err != nil {
			return err
		}
	}
	told := false
	last, err := env.client().SubmitJob(ctx, *spec, func(e client.JobEvent) error {
		if e.Job != nil && !told {
			told = true
			if spec.Detach {
				printSafe(env.Stdout, "%s\n", e.Job.ID)
				if spec.Profile {
					printSafe(env.Stderr, "outboard: when it has ended: outboard jobs show %s --profile %s\n", e.Job.ID, opts.profile)
				}
			} else {
				printSafe(env.Stderr, "outboard: job %s\n", e.Job.ID)
			}
		}
		env.printJobLine(e.Line, opts.output == "json")
		return nil
	})
	if err != nil || spec.Detach {
		return err
	}
	if err := jobError(&last); err != nil || !spec.Profile {
		return err
	}
	return fetchProfile(ctx, env, last.ID, opts.profile, opts.output)
}

// fetchProfile writes the profile of a job to a file and prints it.
func fetchProfile(ctx context.Context, env *Env, id, path string, output format) error {
	var profiles rankProfiles
	if err := profiles.fetch(ctx, env, id); err != nil {
		return err
	}
	return profiles.finish(env, path, output)
}

// jobError returns the error of a job that has ended, with the exit status of the rank that failed
// first.
func jobError(j *client.Job) error {
	switch j.State {
	case client.JobSucceeded:
		return nil
	case client.JobFailed, client.JobCanceled:
		return &statusError{status: max(j.Status, 1), err: fmt.Errorf("job %s: %s", j.ID, clean(j.Reason))}
	default: // the job goes on: the node no longer follows it
		return &statusError{status: statusOther, err: fmt.Errorf("job %s is %s: `outboard jobs show %s`", j.ID, j.State, j.ID)}
	}
}

// printJobLine prints a line of a rank, with the rank in brackets, or a line about the job. Where the
// standard output has JSON, all lines go to the standard error.
func (env *Env) printJobLine(l *client.JobLine, asJSON bool) {
	switch {
	case l == nil:
	case l.Rank < 0:
		printSafe(env.Stderr, "outboard: %s\n", l.Text)
	case l.Stderr || asJSON:
		printSafe(env.Stderr, "[%d] %s\n", l.Rank, l.Text)
	default:
		printSafe(env.Stdout, "[%d] %s\n", l.Rank, l.Text)
	}
}
