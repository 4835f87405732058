package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

type modelsOptions struct{ output format }

func newModelsCommand(env *Env) *cobra.Command {
	var opts modelsOptions
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the models of the pool",
		Long: `List the models of the pool. STATE is the best state that the version in force has on any
node, NODE where:

  ready     it takes requests
  loading   it is being loaded
  unloaded  it is loaded when a request comes
  failed    it could not be loaded; the reason follows

Every node takes requests for every model, at /v2 of the port for HTTP (see outboard status).`,
		Example: `  outboard models
  outboard models push mlp mlp.onnx
  outboard models show mlp --why
  outboard models rollback mlp
  outboard models remove mlp`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runModels(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newModelsPushCommand(env), newModelsShowCommand(env), newModelsRolloutCommand(env), newModelsRollbackCommand(env), newModelsRemoveCommand(env))
	return cmd
}

func runModels(ctx context.Context, env *Env, opts modelsOptions) error {
	models, err := env.client().Models(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for i := range models {
		m := &models[i]
		rows = append(rows, []string{
			m.Name, modelVersionText(m.Version, m.Of, m.Canary), m.Engine, stateText(m.State, m.Reason), orDash(string(m.Node)), m.Size.String(),
			m.Pushed.Local().Format(time.DateTime), string(m.By),
		})
	}
	return opts.output.print(env, models, []string{"MODEL", "VERSION", "ENGINE", "STATE", "NODE", "SIZE", "PUSHED", "BY"}, rows)
}

func modelVersionText(version, of, canary int) string {
	text := strconv.Itoa(version)
	if of != 0 {
		text += fmt.Sprintf(" (as %d)", of)
	}
	if canary > 0 && canary < 100 {
		text += fmt.Sprintf(" for %d %%", canary)
	}
	return text
}

// modelWords returns the names of the models, for completion.
func modelWords(ctx context.Context, c *client.Client) ([]string, error) {
	models, err := c.Models(ctx)
	var names []string
	for i := range models {
		names = append(names, models[i].Name)
	}
	return names, err
}

// ---- push

type modelsPushOptions struct {
	output format
	config string
	files  []string
	check  bool
	noWait bool
}

func newModelsPushCommand(env *Env) *cobra.Command {
	var opts modelsPushOptions
	cmd := &cobra.Command{
		Use:   "push NAME FILE|oci:HOST/REPO:TAG",
		Short: "Serve a model from the pool: an .onnx or .gguf file",
		Long: `Serve a model from the pool: an .onnx or .gguf file. The file becomes a version of the model
NAME; requests go to the version before until nodes have loaded the new one, and no request is
lost. ` + "`outboard models rollback`" + ` brings the version before back; eight versions are kept.

The configuration file (--config) says how the model is served: batches, queue, memory, device.
A mistake in it is reported with its line. Files that the main file refers to, such as external
weights, are named with --file.

oci:HOST/REPO:TAG names an artifact in an OCI registry, whose layers are the model's files with
their names, as ` + "`oras push`" + ` writes it; its file model.yaml is the configuration unless --config
names another. Credentials are those of ` + "`docker login`" + `.

With ` + "`pairs: FILE`" + ` in the configuration, each node compares the version with recorded requests
and results of that file before it gets requests.

The command waits until a node has loaded the model (--no-wait does not), and fails with what the
engine says of the file.`,
		Example: `  outboard models push mlp mlp.onnx
  outboard models push mlp mlp.onnx --config model.yaml
  outboard models push big big.onnx --file big.onnx.data
  outboard models push mlp oci:registry.example.org/models/mlp:v3
  outboard models push mlp mlp.onnx --config model.yaml --check`,
		Args: countedArgs(2, 2, "name a model and a file: outboard models push NAME FILE or oci:HOST/REPO:TAG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runModelsPush(cmd.Context(), env, opts, args[0], args[1])
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{"onnx", "gguf"}, cobra.ShellCompDirectiveFilterFileExt
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&opts.config, "config", "", "configuration `FILE` of the model")
	cmd.Flags().StringSliceVar(&opts.files, "file", nil, "another `FILE` of the model, found by its name")
	cmd.Flags().BoolVar(&opts.check, "check", false, "only check the configuration")
	cmd.Flags().BoolVar(&opts.noWait, "no-wait", false, "do not wait until a node has loaded the model")
	complete(cmd, "output", completeFormat)
	complete(cmd, "config", completeFiles("yaml", "yml"))
	return cmd
}

func runModelsPush(ctx context.Context, env *Env, opts modelsPushOptions, name, file string) error {
	p := client.ModelPush{Name: name, Main: filepath.Base(file), Files: map[string]string{}, Check: opts.check, NoWait: opts.noWait}
	reference, remote := strings.CutPrefix(file, "oci:")
	if opts.config != "" {
		text, err := os.ReadFile(opts.config)
		if err != nil {
			return err
		}
		p.Config, p.ConfigFile = string(text), opts.config
	}
	c := env.client()
	files := opts.files
	if remote {
		if err := addRemoteFiles(ctx, env, c, &p, reference); err != nil {
			return err
		}
	} else {
		files = append([]string{file}, files...)
	}
	if err := addLocalFiles(ctx, env, c, &p, files); err != nil {
		return err
	}
	stop := env.reportIfSlow("having a node load the model")
	made, err := c.PushModel(ctx, p)
	stop()
	if err != nil {
		return err
	}
	for _, warning := range made.Warnings {
		if err := writeSafe(env.Stderr, "outboard: warning: %s\n", warning); err != nil {
			return err
		}
	}
	if opts.check {
		fmt.Fprintf(env.Stderr, "no mistakes\n")
		return nil
	}
	return printPushed(env, opts.output, made)
}

// uploadFile copies a file into the node's store of artifacts unless the store has it, and returns
// its digest.
func uploadFile(ctx context.Context, env *Env, c *client.Client, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", outboard.Errorf(outboard.Invalid, "", "%s is no file", path)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	if has, err := c.HasArtifact(ctx, digest); has || err != nil {
		return digest, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	progress := newCopyProgress(env, "copying "+filepath.Base(path), info.Size())
	_, err = c.PutArtifact(ctx, digest, "", io.TeeReader(f, progress))
	progress.end()
	return digest, err
}

func printPushed(env *Env, output format, made client.PushedModel) error {
	if output == "json" {
		return output.print(env, made, nil, nil)
	}
	text := fmt.Sprintf("model %s, version %d", made.Name, made.Version)
	if made.Of != 0 {
		text += fmt.Sprintf(" (as %d)", made.Of)
	}
	if len(made.Nodes) == 0 {
		text += ", is in force"
	} else {
		var nodes []string
		for _, n := range made.Nodes {
			nodes = append(nodes, string(n))
		}
		text += ", is ready on " + strings.Join(nodes, ", ")
	}
	return writeSafe(env.Stderr, "%s\n", text)
}

// ---- show

type modelsShowOptions struct {
	output format
	why    bool
}

func newModelsShowCommand(env *Env) *cobra.Command {
	var opts modelsShowOptions
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show all about a model: inputs, outputs, versions, and where requests go",
		Long: `Show all about a model: its inputs and outputs, files and versions. With --why it shows what
speaks for and against each node for the next request: whether the model is loaded there, its queue
and its speed, where its files are, and free memory. Requests go to the node with the lowest cost.`,
		Example:           "  outboard models show mlp\n  outboard models show mlp --why\n  outboard models show mlp -o json",
		Args:              oneArg("name one model; `outboard models` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runModelsShow(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: env.firstArg(modelWords),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&opts.why, "why", false, "show what speaks for and against each node")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runModelsShow(ctx context.Context, env *Env, opts modelsShowOptions, name string) error {
	m, err := env.client().Model(ctx, name)
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, m, nil, nil)
	}
	if opts.why {
		var rows [][]string
		for _, p := range m.Placement {
			cost := time.Duration(p.Cost).Round(time.Microsecond).String()
			if p.Excluded {
				cost = "excluded"
			}
			rows = append(rows, []string{string(p.Node), p.State, cost, p.Why})
		}
		return writeTable(env.Stdout, "", []string{"NODE", "STATE", "COST", "WHY"}, rows)
	}
	return printModel(env, &m)
}

func printModel(env *Env, m *client.ModelDetails) error {
	err := writeSafe(env.Stdout, "model %s, version %s, engine %s, %s\n", m.Name, modelVersionText(m.Version, m.Of, m.Canary), m.Engine, stateText(m.State, m.Reason))
	var tensors, versions [][]string
	for _, t := range m.Inputs {
		tensors = append(tensors, []string{"input", t.Name, t.Type, fmt.Sprint(t.Shape)})
	}
	for _, t := range m.Outputs {
		tensors = append(tensors, []string{"output", t.Name, t.Type, fmt.Sprint(t.Shape)})
	}
	for _, v := range m.Versions {
		versions = append(versions, []string{modelVersionText(v.Version, v.Of, 0), v.Size.String(), v.Pushed.Local().Format(time.DateTime), string(v.By)})
	}
	if err == nil && len(tensors) > 0 {
		err = writeTable(env.Stdout, "  ", []string{"", "NAME", "TYPE", "SHAPE"}, tensors)
	}
	return errors.Join(err, writeTable(env.Stdout, "  ", []string{"VERSION", "SIZE", "PUSHED", "BY"}, versions))
}

// ---- rollout, rollback, remove

// allRequests is the percentage of a version that is no canary, for which client.ModelRollout has 0.
const allRequests = 100

type modelsRolloutOptions struct {
	output format
	canary int
	noWait bool
}

func newModelsRolloutCommand(env *Env) *cobra.Command {
	var opts modelsRolloutOptions
	cmd := &cobra.Command{
		Use:   "rollout NAME VERSION",
		Short: "Put a version of a model in force, for all requests or some of them",
		Long: `Put a version of a model in force that is kept. With --canary it gets only that percentage of
the requests, and the version before the others.`,
		Example: "  outboard models rollout mlp 3\n  outboard models rollout mlp 3 --canary 10",
		Args:    countedArgs(2, 2, "name a model and one of its versions; `outboard models show NAME` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := strconv.Atoi(args[1])
			if err != nil {
				return usage("%q is no version: `outboard models show %s` lists them", args[1], args[0])
			}
			if opts.canary < 1 || opts.canary > allRequests {
				return usage("--canary %d: want a percentage from 1 to 100; to give the version no requests, leave it out of force, or `outboard models rollback %s`", opts.canary, args[0])
			}
			stop := env.reportIfSlow("having a node load the version")
			made, err := env.client().RolloutModel(cmd.Context(), args[0], client.ModelRollout{Version: version, Canary: opts.canary % allRequests, NoWait: opts.noWait})
			stop()
			if err != nil {
				return err
			}
			return printPushed(env, opts.output, made)
		},
		ValidArgsFunction: env.firstArg(modelWords),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().IntVar(&opts.canary, "canary", allRequests, "`PERCENT` of the requests that the version gets, from 1 to 100")
	cmd.Flags().BoolVar(&opts.noWait, "no-wait", false, "do not wait until a node has loaded the version")
	complete(cmd, "output", completeFormat)
	return cmd
}

func newModelsRollbackCommand(env *Env) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:     "rollback NAME",
		Short:   "Put the previous version of a model in force again",
		Long:    "Put the previous version of a model in force again. A second roll-back goes further back.",
		Example: "  outboard models rollback mlp",
		Args:    oneArg("name one model; `outboard models` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			made, err := env.client().RollbackModel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printPushed(env, output, made)
		},
		ValidArgsFunction: env.firstArg(modelWords),
	}
	output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func newModelsRemoveCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a model from the pool",
		Long:    "Remove a model from the pool. Requests under way end; its processes end after them.",
		Example: "  outboard models remove mlp",
		Args:    oneArg("name one model; `outboard models` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := env.client().RemoveModel(cmd.Context(), args[0]); err != nil {
				return err
			}
			err := writeSafe(env.Stderr, "model %s was removed\n", args[0])
			return err
		},
		ValidArgsFunction: env.firstArg(modelWords),
	}
}
