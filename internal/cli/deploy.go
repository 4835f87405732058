package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/artifact"
)

// manifestName is the manifest that is deployed by default.
const manifestName = "app.yaml"

type deployOptions struct {
	output format
	update bool
	check  bool
	ready  readyOptions
}

func newDeployCommand(env *Env) *cobra.Command {
	var opts deployOptions
	cmd := &cobra.Command{
		Use:   "deploy [MANIFEST]",
		Short: "Deploy the app of a manifest: functions, workflows, routes",
		Long: `Deploy the app of a manifest (default ` + manifestName + `) in the whole pool: functions, workflows,
routes and other triggers.

The whole app is checked first; mistakes are reported with file and line, and then nothing
changes. Requests and executions end with the version with which they began.
` + "`outboard apps rollback`" + ` deploys the previous version again.

When the app is applied the command waits until every node of the pool serves it, at most for
--wait; it does not wait for a node that fails meanwhile. A node that cannot serve the version,
or is not ready in time, is named with the reason, and the exit status is not 0: the app is
applied all the same, and the nodes try again.

Modules and workflows are files relative to the manifest. A module may also be
oci:HOST/REPO:TAG: it is pulled from there, and the lock beside the manifest (app.lock) records
its digest, so that a changed module is reported before it runs. Credentials are those of
` + "`docker login`" + `. Secrets are read from this machine's environment and files, byte for byte.`,
		Example: `  outboard deploy
  outboard deploy shop/app.yaml
  outboard deploy --check app.yaml
  outboard deploy --update app.yaml     # use the modules that the registry has now
  outboard deploy --wait 10m            # nodes that compile a large app may take longer
  outboard deploy --no-wait             # as soon as it is applied`,
		Args:              atMostOne("name one manifest"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runDeploy(cmd.Context(), env, opts, first(args)) },
		ValidArgsFunction: completeFiles("yaml", "yml"),
	}
	opts.output.addFlag(cmd.Flags())
	opts.ready.addFlags(cmd)
	cmd.Flags().BoolVar(&opts.update, "update", false, "use the modules that references mean now, and record them in the lock")
	cmd.Flags().BoolVar(&opts.check, "check", false, "only check the app")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runDeploy(ctx context.Context, env *Env, opts deployOptions, name string) error {
	if err := opts.ready.validate(); err != nil {
		return err
	}
	stop := env.reportIfSlow("fetching the app's modules, and having the node check and compile them")
	p, err := packApp(ctx, env, name, opts.update)
	var made client.Deployed
	if err == nil {
		p.deployment.Check, p.deployment.NoWait = opts.check, true // awaitNodes waits
		made, err = p.deploy(ctx, env.client())
	}
	stop()
	if problems := p.located(client.ProblemsOf(err)); len(problems) > 0 {
		return printProblems(env, opts.output, problems)
	}
	if err != nil {
		return err
	}
	for _, note := range p.located(made.Notes) {
		printSafe(env.Stderr, "%s\n", note)
	}
	if opts.check {
		fmt.Fprintf(env.Stderr, "%s: no mistakes\n", p.deployment.File)
		return nil
	}
	if err := p.writeLock(); err != nil {
		return err
	}
	return finishDeployed(ctx, env, opts.output, opts.ready, made)
}

// finishDeployed waits for the nodes of an applied version, and prints the result.
func finishDeployed(ctx context.Context, env *Env, output format, ready readyOptions, made client.Deployed) error {
	err := env.awaitNodes(ctx, &made, ready)
	if err != nil && output != "json" {
		return err
	}
	return errors.Join(printDeployed(env, output, made), err)
}

// printProblems prints the mistakes of an app.
func printProblems(env *Env, output format, problems []client.Problem) error {
	if output == "json" {
		encoder := newJSONEncoder(env.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(map[string]any{"problems": problems}); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			printSafe(env.Stderr, "%s\n", p)
		}
	}
	count := "1 problem"
	if len(problems) > 1 {
		count = fmt.Sprintf("%d problems", len(problems))
	}
	return outboard.Errorf(outboard.Invalid, "", "%s; nothing was deployed", count)
}

func printDeployed(env *Env, output format, made client.Deployed) error {
	if output == "json" {
		return output.print(env, made, nil, nil)
	}
	text := fmt.Sprintf("app %s, version %d, is deployed", made.App, made.Version)
	if made.Of != 0 {
		text += fmt.Sprintf(", as in version %d", made.Of)
	}
	if made.Tenant != manifest.DefaultTenant {
		text += " for tenant " + made.Tenant
	}
	printSafe(env.Stdout, "%s\n", text)
	for _, route := range made.Routes {
		printSafe(env.Stdout, "%s\n", "  "+route)
	}
	return nil
}

// A packedApp is a manifest with the files and secrets that it names.
type packedApp struct {
	env        *Env
	dir        string
	deployment client.Deployment
	content    map[string][]byte // of the files that the node lacks, by digest
	update     bool

	remote   *artifact.Remote // nil until the manifest names a module of a registry
	lock     manifest.Lock
	lockName string
	lockText []byte // the file's text
}

// packApp reads a manifest and the files that it names. Its error carries the problems of the
// app.
func packApp(ctx context.Context, env *Env, name string, update bool) (*packedApp, error) {
	p := &packedApp{env: env, content: map[string][]byte{}, update: update}
	p.deployment = client.Deployment{File: findManifest(name), Files: map[string]string{}, Secrets: map[string][]byte{}}
	p.dir = filepath.Dir(p.deployment.File)
	text, err := os.ReadFile(p.deployment.File)
	if err != nil {
		return p, outboard.Errorf(outboard.NotFound, "deploy", "%w: name a manifest, or create one with a function: `outboard new go NAME`", err)
	}
	p.deployment.Text = string(text)
	if err := p.readLock(); err != nil {
		return p, err
	}
	m, err := manifest.Parse(p.deployment.File, text, manifest.Options{
		File:   func(name string) error { return p.file(ctx, name) },
		Secret: p.secret,
	})
	if err != nil {
		return p, problemsError(err)
	}
	p.lock.Retain(m.App.Files())
	return p, ctx.Err()
}

// findManifest returns the manifest that an argument denotes: a file, or the manifest in a folder.
func findManifest(name string) string {
	if name == "" {
		return manifestName
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return filepath.Join(name, manifestName)
	}
	return name
}

// problemsError converts a manifest's problems to those of the client.
func problemsError(err error) error {
	problems, ok := errors.AsType[manifest.Problems](err)
	if !ok {
		return err
	}
	e := &client.ProblemsError{}
	for _, p := range problems {
		e.Problems = append(e.Problems, client.Problem(p))
	}
	return &outboard.Error{Kind: outboard.Invalid, Err: e}
}

// located replaces the names of the manifest's files in problems by paths from the working
// folder.
func (p *packedApp) located(problems []client.Problem) []client.Problem {
	for i, problem := range problems {
		if _, ok := p.deployment.Files[problem.File]; ok && !filepath.IsAbs(problem.File) && !strings.HasPrefix(problem.File, manifest.Registry) {
			problems[i].File = filepath.Join(p.dir, problem.File)
		}
	}
	return problems
}

// file reads a module or a workflow that the manifest names.
func (p *packedApp) file(ctx context.Context, name string) error {
	if p.deployment.Files[name] != "" {
		return nil
	}
	if ref, ok := strings.CutPrefix(name, manifest.Registry); ok {
		return p.module(ctx, name, ref)
	}
	content, err := os.ReadFile(filepath.Join(p.dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %s: build it first, or correct the name", filepath.Join(p.dir, name))
	}
	if err != nil {
		return err
	}
	p.add(name, content)
	return nil
}

func (p *packedApp) add(name string, content []byte) {
	digest := artifact.Digest(content)
	p.deployment.Files[name] = digest
	p.content[digest] = content
}

// module reads a module named by a reference, and pins its digest in the lock.
func (p *packedApp) module(ctx context.Context, name, text string) error {
	ref, err := artifact.ParseReference(text)
	if err != nil {
		return err
	}
	if ref.Local() {
		return p.stored(ctx, name, ref)
	}
	remote, err := p.registries()
	if err != nil {
		return err
	}
	// The lock is checked first, so that a module that it refuses is not fetched.
	now, err := remote.Resolve(ctx, ref)
	if err != nil {
		return p.lockedModule(ctx, name, ref, err)
	}
	if err := p.lock.Pin(name, now, p.update); err != nil {
		return err
	}
	ref.Digest = now
	pulled, err := remote.Pull(ctx, ref)
	if err != nil {
		return err
	}
	p.add(name, pulled.Module)
	p.lock.SetContent(name, artifact.Digest(pulled.Module))
	return nil
}

// lockedModule uses the module that the lock pins if its registry does not answer and the node has
// the module.
func (p *packedApp) lockedModule(ctx context.Context, name string, ref artifact.Reference, unanswered error) error {
	pinned, content := p.lock.Modules[name], p.lock.Content[name]
	if p.update || pinned == "" || content == "" || ref.Digest != "" && ref.Digest != pinned || outboard.KindOf(unanswered) == outboard.NotFound || outboard.KindOf(unanswered) == outboard.Denied {
		return unanswered
	}
	if have, err := p.env.client().HasArtifact(ctx, content); err != nil || !have {
		return unanswered
	}
	fmt.Fprintf(p.env.Stderr, "%s: the registry does not answer, so the module of the lock is deployed, which the node has: %v\n", name, unanswered)
	p.deployment.Files[name] = content
	return nil
}

// stored finds a module in the node's store.
func (p *packedApp) stored(ctx context.Context, name string, ref artifact.Reference) error {
	a, err := storedModule(ctx, p.env.client(), ref)
	if err != nil {
		return err
	}
	if err := p.lock.Pin(name, a.Manifest, p.update); err != nil {
		return err
	}
	p.deployment.Files[name] = a.Digest
	return nil
}

func (p *packedApp) registries() (*artifact.Remote, error) {
	if p.remote == nil {
		remote, err := openRemote(p.env)
		if err != nil {
			return nil, err
		}
		p.remote = remote
	}
	return p.remote, nil
}

// secret reads a secret's value.
func (p *packedApp) secret(name string, s manifest.Secret) error {
	if s.Env != "" {
		value := p.env.getenv(s.Env)
		if value == "" {
			return fmt.Errorf("the environment variable %s is not set: set it for `outboard deploy`, which keeps its value as the secret", s.Env)
		}
		return p.addSecret(name, []byte(value))
	}
	file := s.File
	if !filepath.IsAbs(file) {
		file = filepath.Join(p.dir, file)
	}
	value, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %s: write the secret's value into it", file)
	}
	if err != nil {
		return err
	}
	return p.addSecret(name, value)
}

// maxSecret bounds a secret in bytes: it is stored in the pool's state.
const maxSecret = 64 << 10

func (p *packedApp) addSecret(name string, value []byte) error {
	if len(value) > maxSecret {
		return fmt.Errorf("the secret has %v: it may have %v", outboard.Bytes(len(value)), outboard.Bytes(maxSecret))
	}
	p.deployment.Secrets[name] = value
	return nil
}

// deploy uploads the files and deploys the app.
func (p *packedApp) deploy(ctx context.Context, c *client.Client) (client.Deployed, error) {
	for digest, content := range p.content {
		has, err := c.HasArtifact(ctx, digest)
		if err == nil && !has {
			_, err = c.PutArtifact(ctx, digest, "", bytes.NewReader(content))
		}
		if err != nil {
			return client.Deployed{}, err
		}
	}
	return c.Deploy(ctx, p.deployment)
}

func (p *packedApp) readLock() error {
	p.lockName = manifest.LockName(p.deployment.File)
	text, err := os.ReadFile(p.lockName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.lockText = text
	p.lock, err = manifest.ParseLock(p.lockName, text)
	return problemsError(err)
}

// writeLock writes the lock if it has changed.
func (p *packedApp) writeLock() error {
	text, err := p.lock.Text()
	switch {
	case err != nil, bytes.Equal(text, p.lockText):
		return err
	case len(text) == 0:
		return os.Remove(p.lockName)
	}
	return os.WriteFile(p.lockName, text, 0o644) //nolint:gosec // others may read what is in version control
}
