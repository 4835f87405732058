package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/train/data"
)

type dataOptions struct{ output format }

func newDataCommand(env *Env) *cobra.Command {
	var opts dataOptions
	cmd := &cobra.Command{
		Use: "datasets", Aliases: []string{"data"},
		Short: "List the datasets of the pool",
		Long: `List the datasets of the pool: folders that nodes keep as chunks, named by their content, each
chunk once. ` + "`outboard train --dataset NAME`" + ` restores one beside the ranks of a job.`,
		Example: `  outboard datasets
  outboard datasets push ./digits digits
  outboard datasets pull digits ./copy
  outboard datasets remove digits
  outboard datasets collect s3://models/team-a --dry-run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runData(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newDataPushCommand(env), newDataPullCommand(env), newDataCollectCommand(env), &cobra.Command{
		Use:     "remove NAME",
		Short:   "Forget a dataset of this node",
		Example: "  outboard datasets remove digits",
		Args:    oneArg("name one dataset; `outboard datasets` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := env.client().DeleteDataset(cmd.Context(), args[0]); err != nil {
				return err
			}
			printSafe(env.Stderr, "dataset %s was removed\n", args[0])
			return nil
		},
		ValidArgsFunction: env.firstArg(datasetWords),
	})
	return cmd
}

func runData(ctx context.Context, env *Env, opts dataOptions) error {
	list, err := env.client().Datasets(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, d := range list {
		rows = append(rows, []string{d.Name, string(d.Node), strconv.Itoa(d.Files), d.Size.String(), d.Created.Local().Format(time.DateTime), d.Digest})
	}
	return opts.output.print(env, list, []string{"DATASET", "NODE", "FILES", "SIZE", "CREATED", "DIGEST"}, rows)
}

func newDataPushCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use: "push FOLDER NAME", Aliases: []string{"put"},
		Short: "Copy a folder to this node as a dataset",
		Long: `Copy a folder to this node as a dataset. Chunks that the node has already are not copied again.
A dataset of the same name on this node is replaced; jobs that have begun keep the old one. The
folder has files and folders only; empty folders are left out.`,
		Example: "  outboard datasets push ./digits digits",
		Args:    countedArgs(2, 2, "name a folder and the dataset: outboard datasets push FOLDER NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDataPush(cmd.Context(), env, args[0], args[1])
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func runDataPush(ctx context.Context, env *Env, folder, name string) error {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return usage("%s: want a folder", folder)
	}
	if err := data.CheckName(name); err != nil {
		return err // before the folder is read
	}
	var m data.Manifest
	chunks := nodeChunks{env.client()}
	err := m.AddFolder(ctx, chunks, folder, func(file string) {
		if env.Terminal {
			printSafe(env.Stderr, "\r\033[K%s", file)
		}
	})
	if env.Terminal {
		fmt.Fprint(env.Stderr, "\r\033[K")
	}
	if err != nil {
		return err
	}
	digest, err := data.Save(ctx, chunks, &m)
	if err != nil {
		return err
	}
	d, err := env.client().PutDataset(ctx, name, digest)
	if err != nil {
		return err
	}
	printSafe(env.Stderr, "dataset %s: %d files, %v\n", d.Name, d.Files, d.Size)
	return nil
}

func newDataPullCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use: "pull NAME [FOLDER]", Aliases: []string{"get"},
		Short: "Copy a dataset of the pool to a new folder",
		Long: `Copy a dataset of the pool to a new folder, which has the dataset's name unless you name it. Every
chunk is verified; the folder is whole or is not there. Name a dataset of another node as NODE/NAME
where several nodes have one.`,
		Example: "  outboard datasets pull digits ./copy",
		Args:    countedArgs(1, 2, "name a dataset, and its folder if that has another name: outboard datasets pull NAME [FOLDER]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder := path.Base(args[0]) // of NODE/NAME
			if len(args) == 2 {
				folder = args[1]
			}
			return runDataPull(cmd.Context(), env, args[0], folder)
		},
		ValidArgsFunction: env.firstArg(datasetWords),
	}
}

func runDataPull(ctx context.Context, env *Env, name, folder string) error {
	d, err := env.client().Dataset(ctx, name)
	if err != nil {
		return err
	}
	chunks := nodeChunks{env.client()}
	m, err := data.Load(ctx, chunks, d.Digest)
	if err != nil {
		return fmt.Errorf("dataset %s: %w", name, err)
	}
	if err := m.Restore(ctx, chunks, folder); err != nil {
		return err
	}
	printSafe(env.Stderr, "dataset %s: %d files, %v, in %s\n", d.Name, d.Files, d.Size, folder)
	return nil
}

// nodeChunks implements data.Chunks by the node's store of artifacts.
type nodeChunks struct{ client *client.Client }

var _ data.Chunks = nodeChunks{}

// Has implements data.Chunks.
func (c nodeChunks) Has(ctx context.Context, digest string) (bool, error) {
	return c.client.HasArtifact(ctx, digest)
}

// Put implements data.Chunks.
func (c nodeChunks) Put(ctx context.Context, digest string, content []byte) error {
	_, err := c.client.PutArtifact(ctx, digest, "", bytes.NewReader(content))
	return err
}

// Get implements data.Chunks.
func (c nodeChunks) Get(ctx context.Context, digest string) ([]byte, error) {
	r, err := c.client.Chunk(ctx, digest)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err == nil && artifact.Digest(content) != digest {
		err = outboard.Errorf(outboard.Invalid, "chunk "+digest, "the node sent other content")
	}
	return content, err
}

// datasetWords returns the names of the pool's datasets.
func datasetWords(ctx context.Context, c *client.Client) ([]string, error) {
	list, err := c.Datasets(ctx)
	var words []string
	for _, d := range list {
		words = append(words, d.Name)
	}
	return words, err
}
