package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
)

// openRemote returns a client of registries with the user's credentials.
func openRemote(env *Env) (*artifact.Remote, error) {
	var opts artifact.RemoteOptions
	if dir := env.getenv("DOCKER_CONFIG"); dir != "" {
		opts.DockerConfig = filepath.Join(dir, "config.json")
	}
	return artifact.NewRemote(opts)
}

// storedModule finds the module of a reference in the node's store.
func storedModule(ctx context.Context, c *client.Client, ref artifact.Reference) (client.Artifact, error) {
	found, err := c.Artifacts(ctx, ref.Name())
	switch {
	case err != nil:
		return client.Artifact{}, err
	case len(found) == 0:
		return client.Artifact{}, outboard.Errorf(outboard.NotFound, "",
			"there is no %s in the node's store: `outboard modules push FILE %s` copies one there; for one in a registry write HOST/REPO:TAG", ref.Name(), ref.Name())
	case ref.Digest != "" && found[0].Manifest != ref.Digest:
		return client.Artifact{}, outboard.Errorf(outboard.Conflict, "", "%s is %s in the node's store, not %s", ref.Name(), found[0].Manifest, ref.Digest)
	}
	return found[0], nil
}

func parseReference(text string) (artifact.Reference, error) {
	ref, err := artifact.ParseReference(text)
	if err != nil {
		return ref, usage("%w", err)
	}
	return ref, nil
}

// ---- list, remove

type modulesOptions struct{ output format }

func newModulesCommand(env *Env) *cobra.Command {
	var opts modulesOptions
	cmd := &cobra.Command{
		Use:     "modules",
		Short:   "List the WebAssembly modules in this node's store",
		Example: "  outboard modules\n  outboard modules -o json\n  outboard modules push cart.wasm registry.example.org/shop/cart:v1",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runModules(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newModulesPushCommand(env), newModulesPullCommand(env), newModulesRemoveCommand(env))
	return cmd
}

func newModulesRemoveCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a module from this node's store; apps that were deployed with it keep it",
		Example: "  outboard modules remove cart:v1",
		Args:    oneArg("name one module; `outboard modules` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.client().DeleteArtifact(cmd.Context(), args[0])
		},
		ValidArgsFunction: env.firstArg(moduleWords),
	}
}

func runModules(ctx context.Context, env *Env, opts modulesOptions) error {
	all, err := env.client().Artifacts(ctx, "")
	if err != nil {
		return err
	}
	var rows [][]string
	for _, a := range all {
		rows = append(rows, []string{a.Name, a.Size.String(), a.Digest, a.Manifest})
	}
	return opts.output.print(env, all, []string{"NAME", "SIZE", "MODULE", "MANIFEST"}, rows)
}

// ---- push

type modulesPushOptions struct {
	output format
	author string
}

func newModulesPushCommand(env *Env) *cobra.Command {
	var opts modulesPushOptions
	cmd := &cobra.Command{
		Use:   "push FILE REFERENCE",
		Short: "Copy a WebAssembly module to a registry, or into this node's store",
		Long: `Copy a WebAssembly module to an OCI registry, HOST/REPO:TAG, in the layout of CNCF
("Wasm OCI artifact", version 0), or into this node's store, NAME:TAG. Manifests name it
oci:REFERENCE.

Credentials are those of ` + "`docker login`" + `. A registry on this machine is reached without TLS. A
module that the registry has already, from the same author, keeps its digest.`,
		Example: `  outboard modules push cart.wasm registry.example.org/shop/cart:v1
  outboard modules push cart.wasm cart:v1`,
		Args: countedArgs(2, 2, "name a file and a reference: outboard modules push FILE HOST/REPO:TAG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runModulesPush(cmd.Context(), env, opts, args[0], args[1])
		},
		ValidArgsFunction: completeFiles("wasm"),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&opts.author, "author", "", "the module's `AUTHOR`, for a registry")
	complete(cmd, "output", completeFormat)
	complete(cmd, "author", cobra.NoFileCompletions)
	return cmd
}

// pushed is the JSON form of a pushed module.
type pushed struct {
	Reference string `json:"reference"`
	Manifest  string `json:"manifest"`
	Module    string `json:"module"`
}

func runModulesPush(ctx context.Context, env *Env, opts modulesPushOptions, file, reference string) error {
	ref, err := parseReference(reference)
	if err != nil {
		return err
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return outboard.Errorf(outboard.NotFound, "push", "%w", err)
	}
	out := pushed{Reference: ref.Name(), Module: artifact.Digest(module)}
	stop := env.reportIfSlow("pushing %v to %s", outboard.Bytes(len(module)), ref.Name())
	if ref.Local() {
		out.Manifest, err = pushToNode(ctx, env.client(), ref, out.Module, module)
	} else {
		out.Manifest, err = pushToRegistry(ctx, env, ref, module, opts.author)
	}
	stop()
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, out, nil, nil)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s@%s\n", out.Reference, out.Manifest)
	return err
}

func pushToNode(ctx context.Context, c *client.Client, ref artifact.Reference, digest string, module []byte) (string, error) {
	a, err := c.PutArtifact(ctx, digest, ref.Name(), bytes.NewReader(module))
	return a.Manifest, err
}

func pushToRegistry(ctx context.Context, env *Env, ref artifact.Reference, module []byte, author string) (string, error) {
	remote, err := openRemote(env)
	if err != nil {
		return "", err
	}
	return remote.Push(ctx, ref, module, artifact.Info{Created: time.Now(), Author: author})
}

// ---- pull

type modulesPullOptions struct{ output format }

func newModulesPullCommand(env *Env) *cobra.Command {
	var opts modulesPullOptions
	cmd := &cobra.Command{
		Use:   "pull REFERENCE [FILE]",
		Short: "Copy a WebAssembly module from a registry, or from this node's store",
		Long: `Copy a WebAssembly module from an OCI registry, HOST/REPO:TAG, or from this node's store,
NAME:TAG, and write it to FILE (default REPO's last part with .wasm; - is standard output). A
digest behind the reference, @sha256:..., is checked.`,
		Example: `  outboard modules pull registry.example.org/shop/cart:v1
  outboard modules pull cart:v1 - | wasm-objdump -x -`,
		Args: countedArgs(1, 2, "name a reference: outboard modules pull HOST/REPO:TAG [FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runModulesPull(cmd.Context(), env, opts, args[0], first(args[1:]))
		},
		ValidArgsFunction: env.firstArg(moduleWords),
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

// pulled is the JSON form of a pulled module.
type pulled struct {
	Reference string `json:"reference"`
	Manifest  string `json:"manifest"`
	Module    string `json:"module"`
	File      string `json:"file"`
}

func runModulesPull(ctx context.Context, env *Env, opts modulesPullOptions, reference, file string) error {
	ref, err := parseReference(reference)
	if err != nil {
		return err
	}
	if file == "" {
		file = path.Base(ref.Repository) + ".wasm"
	}
	var module []byte
	out := pulled{Reference: ref.Name(), File: file}
	stop := env.reportIfSlow("pulling %s", ref)
	if ref.Local() {
		out.Manifest, module, err = pullFromNode(ctx, env.client(), ref)
	} else {
		out.Manifest, module, err = pullFromRegistry(ctx, env, ref)
	}
	stop()
	if err != nil {
		return err
	}
	out.Module = artifact.Digest(module)
	if file == "-" {
		_, err := env.Stdout.Write(module)
		return err
	}
	if err := os.WriteFile(file, module, 0o644); err != nil { //nolint:gosec // a module is no secret
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, out, nil, nil)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s  %s@%s\n", file, out.Reference, out.Manifest)
	return err
}

func pullFromNode(ctx context.Context, c *client.Client, ref artifact.Reference) (manifest string, module []byte, err error) {
	a, err := storedModule(ctx, c, ref)
	if err != nil {
		return "", nil, err
	}
	r, err := c.Artifact(ctx, a.Digest)
	if err != nil {
		return "", nil, err
	}
	module, err = io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err == nil && artifact.Digest(module) != a.Digest {
		err = outboard.Errorf(outboard.Protocol, "pull "+ref.String(), "the content that the node sent has another digest")
	}
	return a.Manifest, module, err
}

func pullFromRegistry(ctx context.Context, env *Env, ref artifact.Reference) (manifest string, module []byte, err error) {
	remote, err := openRemote(env)
	if err != nil {
		return "", nil, err
	}
	p, err := remote.Pull(ctx, ref)
	if err != nil {
		return "", nil, err
	}
	return p.Manifest, p.Module, nil
}
