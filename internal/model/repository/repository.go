// Package repository keeps the versions of models in the pool's table, and their files as
// artifacts.
//
// The key `models/NAME` holds one model, with its last versions; it is written by compare-and-swap.
// The last version is in force.
package repository

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/versions"
)

const (
	prefix = "models/"
	// maxVersion bounds a version encoded in JSON, in bytes.
	maxVersion   = 64 << 10
	keptVersions = 8
	keptBytes    = 4 * maxVersion
	maxFiles     = 64
)

// Version is the state of a model as it was pushed.
type Version struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	Engine string `json:"engine"`
	Config Config `json:"config,omitzero"`
	// Main is the name of the file that the engine loads.
	Main string `json:"main"`
	// Files are the artifacts of the model, by their names in its folder.
	Files map[string]File `json:"files"`
	// Canary is the percentage of requests that this version gets; the others go to the version
	// that was in force before it. 0 and 100 mean all requests.
	Canary  int             `json:"canary,omitempty"`
	Applied time.Time       `json:"applied"`
	By      outboard.NodeID `json:"by"`
	// Of is the number of the earlier version whose content this version restored, 0 if it restored
	// none.
	Of int `json:"of,omitempty"`

	content string // Content, of versions that the repository returns
}

// A File is an artifact.
type File struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// Bytes returns the size of all files.
func (v *Version) Bytes() int64 {
	total := int64(0)
	for _, f := range v.Files {
		total += f.Size
	}
	return total
}

// Content identifies the content of the version: two versions of a model with the same content are
// interchangeable. The versions that Get and List return must not be changed.
func (v *Version) Content() string {
	if v.content != "" {
		return v.content
	}
	text, err := json.Marshal(struct {
		Engine, Main string
		Config       Config
		Files        map[string]File
	}{v.Engine, v.Main, v.Config, v.Files})
	if err != nil {
		return strconv.Itoa(v.Number)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Numbers implements versions.Version.
func (v *Version) Numbers() (own, of int) { return v.Number, v.Of }

// Stamp implements versions.Version.
func (v *Version) Stamp(number int, at time.Time, by outboard.NodeID) {
	v.Number, v.Applied, v.By = number, at, by
}

// Size implements versions.Version.
func (v *Version) Size() int {
	text, err := json.Marshal(v)
	if err != nil {
		return maxVersion + 1 // writing it reports the error
	}
	return len(text)
}

// Model is the history of a model: the kept versions, oldest first.
type Model = versions.History[Version, *Version]

// Options configure a Repository.
type Options struct {
	State  *state.State
	Self   outboard.NodeID
	Logger *slog.Logger
}

// A Repository is a node's view of the models, and changes them. Any number of goroutines may use
// it.
type Repository struct {
	opts   Options
	view   *state.Follower
	models map[string]Model // under view's lock
}

// Open follows the table. It returns when the view is complete for the first time.
func Open(ctx context.Context, opts Options) (*Repository, error) {
	r := &Repository{opts: opts, models: map[string]Model{}}
	var err error
	if r.view, err = state.Follow(ctx, opts.State, opts.Logger, r.apply); err != nil {
		return nil, fmt.Errorf("open models: %w", err)
	}
	return r, nil
}

// Close stops following the table.
func (r *Repository) Close() error { return r.view.Close() }

// Changed returns a channel that is closed at the next change of a model.
func (r *Repository) Changed() <-chan struct{} { return r.view.Changed() }

func (r *Repository) apply(e state.Entry) (bool, error) {
	name, ok := strings.CutPrefix(e.Key, prefix)
	if !ok || e.Revision <= r.models[name].Revision {
		return false, nil
	}
	m, err := versions.Decode[Version](e)
	if err != nil {
		return false, err
	}
	for i := range m.Versions {
		v := &m.Versions[i]
		if err := v.validate(); err != nil || v.Name != name {
			return false, fmt.Errorf("version %d of model %.100q is malformed: %w", v.Number, name, cmp.Or(err, errWrongName))
		}
		// Each request compares contents, so they are computed once.
		m.Versions[i].content = m.Versions[i].Content()
	}
	r.models[name] = m
	return true, nil
}

var errWrongName = errors.New("its name is not that of its key")

// validate returns the first mistake in a version. Another node may have written it to the table: a
// node uses the names of the model and of its files as names in its own file system.
func (v *Version) validate() error {
	if err := CheckName(v.Name); err != nil {
		return err
	}
	switch {
	case len(v.Files) > maxFiles:
		return outboard.Errorf(outboard.Invalid, "", "%d files, at most %d are allowed", len(v.Files), maxFiles)
	case v.Files[v.Main].Digest == "":
		return outboard.Errorf(outboard.Invalid, "", "there is no file %q", v.Main)
	}
	if name := v.Config.Pairs; name != "" && v.Files[name].Digest == "" {
		return outboard.Errorf(outboard.Invalid, "", "its configuration names the recorded pairs %q, which are not among its files: add --file %s", name, name)
	}
	for name, f := range v.Files {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") || len(name) > 255 {
			return outboard.Errorf(outboard.Invalid, "", "%q can't be the name of a file", name)
		}
		if f.Size < 0 {
			return outboard.Errorf(outboard.Invalid, "", "file %q has a size of %d", name, f.Size)
		}
	}
	if err := v.Config.validate(); err != nil {
		return outboard.Errorf(outboard.Invalid, "", "%w", err)
	}
	return nil
}

// List returns all models, by name.
func (r *Repository) List() []Model {
	r.view.Lock()
	defer r.view.Unlock()
	var all []Model
	for _, name := range slices.Sorted(maps.Keys(r.models)) {
		if m := r.models[name]; m.Current() != nil {
			all = append(all, m)
		}
	}
	return all
}

// Get returns the model with a name or an alias.
func (r *Repository) Get(name string) (Model, error) {
	r.view.Lock()
	m, ok := r.models[name]
	r.view.Unlock()
	if ok && m.Current() != nil {
		return m, nil
	}
	var names []string
	for _, m := range r.List() {
		now := m.Current()
		if slices.Contains(now.Config.Aliases, name) {
			return m, nil
		}
		names = append(names, now.Name)
	}
	if len(names) == 0 {
		return Model{}, outboard.Errorf(outboard.NotFound, "", "there is no model %q, and no other: push one with `outboard models push`", name)
	}
	return Model{}, outboard.Errorf(outboard.NotFound, "", "there is no model %q: there are %s", name, strings.Join(names, ", "))
}

// missing returns the error of an operation on a model that does not exist, which names the others.
func (r *Repository) missing(op, name string) error {
	_, err := r.Get(name) // finds an alias
	return outboard.Errorf(outboard.NotFound, op, "%w", cmp.Or(err, error(outboard.Errorf(outboard.NotFound, "", "there is no model %q", name))))
}

// Files returns the digests of the artifacts that the kept versions need.
func (r *Repository) Files() map[string]bool {
	files := map[string]bool{}
	for _, m := range r.List() {
		for i := range m.Versions {
			for _, f := range m.Versions[i].Files {
				files[f.Digest] = true
			}
		}
	}
	return files
}

func (r *Repository) history(name string) versions.Keeper[Version, *Version] {
	return versions.Keeper[Version, *Version]{
		State: r.opts.State, Key: prefix + name, Self: r.opts.Self, Versions: keptVersions, Bytes: keptBytes,
	}
}

// Push puts a version in force in the whole pool; Number, Applied and By are filled in. The files
// must be in this node's store of artifacts.
func (r *Repository) Push(ctx context.Context, v Version) (Version, error) {
	op := "push " + v.Name
	if err := v.validate(); err != nil {
		return v, outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	if size := v.Size(); size > maxVersion {
		return v, outboard.Errorf(outboard.Invalid, op, "its configuration has %d bytes, at most %d are allowed", size, maxVersion)
	}
	return r.history(v.Name).Push(ctx, op, func(Model) (Version, error) {
		v.Of = 0
		return v, nil
	})
}

// Rollout puts a kept version in force again; canary is the percentage of requests that it gets, 0
// for all.
func (r *Repository) Rollout(ctx context.Context, name string, number, canary int) (Version, error) {
	op := fmt.Sprintf("roll out version %d of %s", number, name)
	if canary < 0 || canary > 100 {
		return Version{}, outboard.Errorf(outboard.Invalid, op, "a canary of %d %%: want 0 to 100", canary)
	}
	return r.history(name).Push(ctx, op, func(m Model) (Version, error) {
		for i := range m.Versions {
			v := m.Versions[i]
			if v.Number != number {
				continue
			}
			if now := m.Current(); canary > 0 && canary < 100 && now.Canary == 0 && now.pushedAs() == v.pushedAs() {
				// The other requests would go to an earlier version, which may have been rolled back.
				return v, outboard.Errorf(outboard.Conflict, op, "version %d, which is in force, has the same content: a canary is another version", now.Number)
			}
			v.Of, v.Canary = cmp.Or(v.Of, v.Number), canary
			return v, nil
		}
		if len(m.Versions) == 0 {
			return Version{}, r.missing(op, name)
		}
		return Version{}, outboard.Errorf(outboard.NotFound, op, "the versions that are kept are %s", numbers(m))
	})
}

func numbers(m Model) string {
	var list []string
	for i := range m.Versions {
		list = append(list, fmt.Sprint(m.Versions[i].Number))
	}
	return strings.Join(list, ", ")
}

// Rollback puts the version that preceded the one in force in force again. A canary ends.
func (r *Repository) Rollback(ctx context.Context, name string) (Version, error) {
	op := "roll back " + name
	return r.history(name).Push(ctx, op, func(m Model) (Version, error) {
		now := m.Current()
		if now == nil {
			return Version{}, r.missing(op, name)
		}
		return orNotFound(op)(Preceding(m))
	})
}

// Preceding returns the version that a roll-back of a model puts in force again, if there is one.
func Preceding(m Model) (Version, bool) {
	if now := m.Current(); now != nil && now.Canary > 0 {
		return precedingCanary(m)
	}
	return previous(m)
}

// orNotFound returns a function that turns the absence of a version into an error of op.
func orNotFound(op string) func(Version, bool) (Version, error) {
	return func(v Version, ok bool) (Version, error) {
		if !ok {
			return v, outboard.Errorf(outboard.NotFound, op, "there is no earlier version")
		}
		return v, nil
	}
}

// Withdraw puts the version that preceded a version in force again, and removes the model if there
// is none: Number is 0 then. It returns a Conflict if that version is not in force any more.
func (r *Repository) Withdraw(ctx context.Context, name string, number int) (Version, error) {
	op := "withdraw " + name
	inForce := func(m Model) error {
		if now := m.Current(); now == nil || now.Number != number {
			return outboard.Errorf(outboard.Conflict, op, "version %d is not in force any more", number)
		}
		return nil
	}
	v, err := r.history(name).Push(ctx, op, func(m Model) (Version, error) {
		if err := inForce(m); err != nil {
			return Version{}, err
		}
		return orNotFound(op)(previous(m))
	})
	if outboard.KindOf(err) != outboard.NotFound {
		return v, err
	}
	return Version{}, r.history(name).Remove(ctx, op, inForce)
}

// previous returns the version that preceded the content in force.
func previous(m Model) (Version, bool) {
	v, ok := m.Previous()
	v.Of, v.Canary = v.pushedAs(), 0
	return v, ok
}

// precedingCanary returns the version that replaces the canary in force: the last one with other
// content, which gets the requests that the canary does not get.
func precedingCanary(m Model) (Version, bool) {
	now := m.Current()
	for n := len(m.Versions) - 2; n >= 0; n-- {
		if v := m.Versions[n]; v.pushedAs() != now.pushedAs() {
			v.Of, v.Canary = v.pushedAs(), 0
			return v, true
		}
	}
	return Version{}, false
}

// RevertCanary puts the version that preceded a canary in force, if the canary is the current
// version.
func (r *Repository) RevertCanary(ctx context.Context, name string, number int) (Version, error) {
	op := "take back " + name
	return r.history(name).Push(ctx, op, func(m Model) (Version, error) {
		now := m.Current()
		if now == nil || now.Number != number || now.Canary == 0 {
			return Version{}, outboard.Errorf(outboard.Conflict, op, "version %d is no canary any more", number)
		}
		return orNotFound(op)(precedingCanary(m))
	})
}

// pushedAs returns the number with which the content of a version was pushed.
func (v *Version) pushedAs() int { return cmp.Or(v.Of, v.Number) }

// Remove removes a model. A model that is pushed under its name later has greater numbers.
func (r *Repository) Remove(ctx context.Context, name string) error {
	op := "remove " + name
	return r.history(name).Remove(ctx, op, func(m Model) error {
		if m.Current() == nil {
			return r.missing(op, name)
		}
		return nil
	})
}

// Await waits until this view has the version of a model, or a later one.
func (r *Repository) Await(ctx context.Context, name string, number int) error {
	for {
		changed := r.Changed()
		r.view.Lock()
		m := r.models[name]
		r.view.Unlock()
		if v := m.Current(); v != nil && v.Number >= number {
			return nil
		}
		select {
		case <-ctx.Done():
			return outboard.Errorf(outboard.NotFound, "", "there is no version %d of a model %q here yet", number, name)
		case <-changed:
		}
	}
}
