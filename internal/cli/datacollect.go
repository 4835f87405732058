package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/object"
)

type collectOptions struct {
	output    format
	dryRun    bool
	olderThan time.Duration
}

func newDataCollectCommand(env *Env) *cobra.Command {
	var opts collectOptions
	cmd := &cobra.Command{
		Use: "collect s3://BUCKET/PREFIX", Aliases: []string{"gc"},
		Short: "Delete what the pool does not need from its bucket",
		Long: `Delete what the pool does not need from its bucket: chunks that are in no dataset and in
no checkpoint of the pool's jobs, and what ended jobs have left of sums of gradients. The bucket is
named as in ` + "`outboard up --objects`" + `, with the same AWS_... variables.

Only objects older than --older-than are deleted, by the clock of the bucket's server. Nodes may
write datasets and checkpoints at the same time: they write a chunk again that is older than half
of the least age. All nodes that use the bucket must be of this release, and of this pool: what
another pool keeps below the same prefix would be deleted. If a dataset or a checkpoint can't be
read, nothing is deleted.`,
		Example: `  outboard datasets collect s3://models/team-a --dry-run
  outboard datasets collect 's3://models/team-a?endpoint=https://s3.example.com&region=eu' --older-than 336h`,
		Args:              oneArg("name the bucket: outboard datasets collect s3://BUCKET/PREFIX"),
		ValidArgsFunction: cobra.FixedCompletions([]cobra.Completion{"s3://"}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDataCollect(cmd.Context(), env, opts, args[0])
		},
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.Flags().BoolVar(&opts.dryRun, "dry-run", false, "count what would be deleted")
	cmd.Flags().DurationVar(&opts.olderThan, "older-than", 30*24*time.Hour, "least age of what is deleted, at least "+data.MinCollectAge.String())
	return cmd
}

// A collected is the output of `outboard datasets collect`.
type collected struct {
	data.Collected
	Bucket string `json:"bucket"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func runDataCollect(ctx context.Context, env *Env, opts collectOptions, bucket string) error {
	options, err := env.parseBucket(bucket)
	if err != nil {
		return usage("%w", err)
	}
	if opts.olderThan < data.MinCollectAge {
		return usage("--older-than %v: want at least %v, since writers rely on younger chunks", opts.olderThan, data.MinCollectAge)
	}
	b, err := object.Open(options)
	if err != nil {
		return err
	}
	c := data.Collection{
		Bucket: b, Age: opts.olderThan, DryRun: opts.dryRun,
		Needs: func(ctx context.Context) (data.Needs, error) { return poolNeeds(ctx, env.client()) },
	}
	if env.Terminal {
		c.Progress = func(done data.Collected) {
			fmt.Fprintf(env.Stderr, "\r\033[K%d listed, %d of %d deleted", done.Listed.Objects, done.Deleted.Objects, done.Unneeded.Objects)
		}
		defer fmt.Fprint(env.Stderr, "\r\033[K")
	}
	done, err := c.Run(ctx)
	if err != nil {
		return err
	}
	row := func(what string, c data.Count) []string {
		return []string{what, strconv.FormatInt(c.Objects, 10), c.Size.String()}
	}
	rows := [][]string{row("in the bucket", done.Listed), row("not needed", done.Unneeded), row("deleted", done.Deleted)}
	return opts.output.print(env, collected{done, b.String(), opts.dryRun}, []string{"WHAT", "OBJECTS", "SIZE"}, rows)
}

// parseBucket reads the name of a bucket, whose credentials are in the environment.
func (env *Env) parseBucket(text string) (object.Options, error) {
	b, err := object.Parse(text)
	b.Credentials = object.Credentials{Key: env.getenv("AWS_ACCESS_KEY_ID"), Secret: env.getenv("AWS_SECRET_ACCESS_KEY"), Token: env.getenv("AWS_SESSION_TOKEN")}
	return b, err
}

// poolNeeds returns what the datasets and jobs of the pool need in its bucket. The datasets of ended
// jobs are not needed unless the pool has them still.
func poolNeeds(ctx context.Context, c *client.Client) (data.Needs, error) {
	needs := data.Needs{Chunks: make(map[string]bool), Jobs: make(map[string]bool)}
	manifests := make(map[string]string) // by digest, with what they describe
	sets, err := c.Datasets(ctx)
	if err != nil {
		return needs, err
	}
	for _, d := range sets {
		manifests[d.Digest] = "dataset " + string(d.Node) + "/" + d.Name
	}
	jobs, err := c.Jobs(ctx)
	if err != nil {
		return needs, err
	}
	for _, j := range jobs {
		for _, digest := range j.Manifests() {
			manifests[digest] = "a checkpoint, or the states of stages, of job " + j.ID
		}
		if j.State.Final() {
			continue // Any node may write an ended job with the ID of a running one.
		}
		if needs.Jobs[j.ID] = true; j.DataDigest != "" {
			manifests[j.DataDigest] = "the dataset of job " + j.ID
		}
	}
	for digest, what := range manifests {
		needs.Chunks[digest] = true
		m, err := data.Load(ctx, nodeChunks{c}, digest)
		if err != nil {
			return needs, outboard.Errorf(outboard.KindOf(err), "", "%s: %w", what, err)
		}
		m.Digests(needs.Chunks)
	}
	return needs, nil
}
