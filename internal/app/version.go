package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/spell"
)

// Function is a function of a version, ready to be called.
type Function interface {
	// ArenaLimit returns how large an execution's arena may be for the function to map it, 0 for
	// any size.
	ArenaLimit() outboard.Bytes
	// Close waits for the calls in progress and frees the instances.
	Close() error
}

// Resources are the resources that the functions of all versions of an app share on a node.
type Resources interface {
	// SetSecrets replaces the app's secrets.
	SetSecrets(secrets map[string][]byte)
	// Close frees the resources when no function of the app runs any more.
	Close()
}

// Source is the file that a function or a workflow is built from.
type Source struct {
	// Name is the name in the manifest of the function or workflow, File of the file.
	Name, File string
	Digest     string
	Content    []byte
}

// Planes builds the parts of versions.
type Planes[F Function, W any] interface {
	// NewResources returns the resources of an app, which Deployments closes.
	NewResources(app string) Resources
	// DeployFunction builds a function of v. An error that is not ctx's is a fault of the module.
	DeployFunction(ctx context.Context, v *Version[F, W], s Source) (F, error)
	// ParseWorkflow checks a workflow of v. unknown returns why v has no function of a name, "" if
	// it has one.
	ParseWorkflow(v *Version[F, W], s Source, unknown func(function string) string) (W, []manifest.Problem)
	// CheckWorkflows checks the references of v's workflows to each other.
	CheckWorkflows(v *Version[F, W]) []manifest.Problem
}

// Files reads files by their digests.
type Files interface {
	// Size returns the size of a file that this node has.
	Size(digest string) (int64, error)
	// Read returns a file of this node, or of another one that has it.
	Read(ctx context.Context, digest string) ([]byte, error)
}

// Version is a deployed version of an app, ready to be called. It is immutable but for its
// reference count: the functions close with the last reference.
type Version[F Function, W any] struct {
	Number    int
	Spec      *manifest.App
	Resources Resources
	Functions map[string]F
	Workflows map[string]W

	digests map[string]string // of the files, by their names in the manifest

	mu         sync.Mutex
	references int // of Deployments and of executions
}

// retain adds a reference. It returns false when the version is closed.
func (v *Version[F, W]) retain() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.references == 0 {
		return false
	}
	v.references++
	return true
}

// Release drops a reference. The last one closes the functions, after the calls in
// progress.
func (v *Version[F, W]) Release() error {
	v.mu.Lock()
	v.references--
	last := v.references == 0
	v.mu.Unlock()
	if !last {
		return nil
	}
	return v.close()
}

func (v *Version[F, W]) close() error {
	var errs []error
	for _, f := range v.Functions {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// WorkflowDigest returns the digest of a workflow's file.
func (v *Version[F, W]) WorkflowDigest(name string) string { return v.digests[v.Spec.Workflows[name]] }

// defaultArena is the size of an execution's arena if no function's window is smaller. Only written
// pages occupy memory.
const defaultArena outboard.Bytes = 64 << 20

// ArenaSize returns how large an execution's arena may be so that all functions can map it.
func (v *Version[F, W]) ArenaSize() outboard.Bytes {
	size := defaultArena
	for _, f := range v.Functions {
		if limit := f.ArenaLimit(); limit > 0 {
			size = min(size, limit)
		}
	}
	return size
}

// recipe is the input of a build.
type recipe struct {
	number    int
	spec      *manifest.App
	file      string             // the manifest's name, for problems
	files     map[string]string  // digests by the names in the manifest
	text      *manifest.Manifest // finds the position of a problem; nil where there is no text
	resources Resources
}

// build builds a version. Problems are faults of the app, an error is a fault of this node.
func (c *Deployments[F, W]) build(ctx context.Context, r recipe) (*Version[F, W], []manifest.Problem, error) {
	b := &builder[F, W]{files: c.opts.Files, planes: c.opts.Planes, recipe: r, version: &Version[F, W]{
		Number: r.number, Spec: r.spec, Resources: r.resources, digests: r.files, references: 1,
		Functions: map[string]F{}, Workflows: map[string]W{},
	}}
	err := b.build(ctx)
	if err != nil || len(b.problems) > 0 {
		_ = b.version.close() // none of its functions was called
		return nil, b.problems, err
	}
	return b.version, nil, nil
}

// builder builds one version and collects the problems of its manifest.
type builder[F Function, W any] struct {
	files    Files
	planes   Planes[F, W]
	recipe   recipe
	version  *Version[F, W]
	problems []manifest.Problem
}

func (b *builder[F, W]) build(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(b.recipe.spec.Functions)) {
		if err := b.function(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.recipe.spec.Workflows)) {
		if err := b.workflow(ctx, name); err != nil {
			return err
		}
	}
	if len(b.problems) == 0 {
		b.problems = b.planes.CheckWorkflows(b.version)
	}
	return nil
}

func (b *builder[F, W]) read(ctx context.Context, name, file string) (Source, error) {
	digest := b.recipe.files[file]
	content, err := b.files.Read(ctx, digest)
	return Source{Name: name, File: file, Digest: digest, Content: content}, err
}

func (b *builder[F, W]) function(ctx context.Context, name string) error {
	file := b.recipe.spec.Functions[name].Module
	source, err := b.read(ctx, name, file)
	if err != nil {
		return fmt.Errorf("module %s of function %s: %w", file, name, err)
	}
	f, err := b.planes.DeployFunction(ctx, b.version, source)
	if err != nil {
		b.report(err, "functions/"+name+"/module")
		return ctx.Err()
	}
	b.version.Functions[name] = f
	return nil
}

func (b *builder[F, W]) workflow(ctx context.Context, name string) error {
	file := b.recipe.spec.Workflows[name]
	source, err := b.read(ctx, name, file)
	if err != nil {
		return fmt.Errorf("workflow %s: %w", file, err)
	}
	w, problems := b.planes.ParseWorkflow(b.version, source, b.unknownFunction)
	b.problems = append(b.problems, problems...)
	b.version.Workflows[name] = w
	return nil
}

// unknownFunction returns why the app has no function of a name, "" if it has one.
func (b *builder[F, W]) unknownFunction(name string) string {
	if _, ok := b.recipe.spec.Functions[name]; ok {
		return ""
	}
	return fmt.Sprintf("there is no function %q in the app: %s", name, spell.Hint(name, slices.Collect(maps.Keys(b.recipe.spec.Functions))))
}

// report adds a problem at a path of the manifest.
func (b *builder[F, W]) report(err error, path string) {
	if b.recipe.text != nil {
		b.problems = append(b.problems, b.recipe.text.Problem(err.Error(), strings.Split(path, "/")...))
		return
	}
	b.problems = append(b.problems, manifest.Problem{File: b.recipe.file, Text: path + ": " + err.Error()})
}
