package artifact

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// A Named is a module that has a name in a store.
type Named struct {
	Name string
	// Manifest is the digest of the module's OCI manifest, Module the digest of the module.
	Manifest, Module string
	Size             int64 // of the module
	Created          time.Time
}

// Name gives a module of the store a name and an OCI manifest, and so protects it from
// Collect. It replaces the module that had the name before.
func (s *Store) Name(ctx context.Context, name, module string, info Info) (Named, error) {
	op := "name artifact " + name
	if _, err := ParseReference(name); err != nil {
		return Named{}, &outboard.Error{Op: "name artifact", Kind: outboard.Invalid, Err: err}
	}
	content, err := s.Read(ctx, module)
	if err != nil {
		return Named{}, &outboard.Error{Op: op, Kind: outboard.KindOf(err), Err: err}
	}
	p, err := pack(content, info)
	if err != nil {
		return Named{}, &outboard.Error{Op: op, Kind: outboard.KindOf(err), Err: err}
	}
	return s.saveNamed(ctx, op, name, p)
}

// saveNamed puts a packed module into the store and names it.
func (s *Store) saveNamed(ctx context.Context, op, name string, p *packed) (Named, error) {
	for _, content := range [][]byte{p.module, p.config, p.manifest} {
		if _, err := s.Put(ctx, content); err != nil {
			return Named{}, fmt.Errorf("%s: %w", op, err)
		}
	}
	d := p.descriptor()
	d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
	err := s.change(func(index *ocispec.Index) {
		index.Manifests = append(without(index.Manifests, name), d)
	})
	if err != nil {
		return Named{}, fmt.Errorf("%s: %w", op, err)
	}
	return Named{name, string(d.Digest), Digest(p.module), int64(len(p.module)), p.info.Created}, nil
}

// Unname deletes a name. A later Collect deletes the module if nothing else refers to it.
func (s *Store) Unname(_ context.Context, name string) error {
	found := false
	err := s.change(func(index *ocispec.Index) {
		rest := without(index.Manifests, name)
		found = len(rest) < len(index.Manifests)
		index.Manifests = rest
	})
	if err != nil {
		return fmt.Errorf("remove artifact %s: %w", name, err)
	}
	if !found {
		return outboard.Errorf(outboard.NotFound, "remove artifact", "there is none called %s: `outboard modules` lists them", name)
	}
	return nil
}

func without(all []ocispec.Descriptor, name string) []ocispec.Descriptor {
	return slices.DeleteFunc(slices.Clone(all), func(d ocispec.Descriptor) bool { return d.Annotations[ocispec.AnnotationRefName] == name })
}

// Names returns the named modules, sorted by name, without unreadable ones.
func (s *Store) Names(ctx context.Context) ([]Named, error) {
	index, err := s.index()
	if err != nil {
		return nil, fmt.Errorf("names of artifacts: %w", err)
	}
	var all []Named
	for _, d := range index.Manifests {
		if n, err := s.named(ctx, d); err == nil {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Resolve returns the module with a name.
func (s *Store) Resolve(ctx context.Context, name string) (Named, error) {
	index, err := s.index()
	if err != nil {
		return Named{}, fmt.Errorf("resolve artifact %s: %w", name, err)
	}
	for _, d := range index.Manifests {
		if d.Annotations[ocispec.AnnotationRefName] == name {
			return s.named(ctx, d)
		}
	}
	return Named{}, outboard.Errorf(outboard.NotFound, "", "there is no module called %s in the node's store: `outboard modules push FILE %s` copies one there", name, name)
}

func (s *Store) named(ctx context.Context, d ocispec.Descriptor) (Named, error) {
	text, err := s.Read(ctx, string(d.Digest))
	if err != nil {
		return Named{}, err
	}
	m, err := readManifest(d.MediaType, text)
	if err != nil {
		return Named{}, err
	}
	config, err := s.Read(ctx, string(m.Config.Digest))
	if err != nil {
		return Named{}, err
	}
	info, err := readConfig(config, m.Layers[0])
	if err != nil {
		return Named{}, err
	}
	return Named{d.Annotations[ocispec.AnnotationRefName], string(d.Digest), string(m.Layers[0].Digest), m.Layers[0].Size, info.Created}, nil
}

func (s *Store) index() (ocispec.Index, error) {
	var index ocispec.Index
	text, err := os.ReadFile(s.at(indexFile))
	if err == nil {
		err = json.Unmarshal(text, &index)
	}
	return index, err
}

// change changes the index under the lock.
func (s *Store) change(f func(*ocispec.Index)) error {
	unlock, err := s.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	index, err := s.index()
	if err != nil {
		return err
	}
	f(&index)
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return s.writeFile(indexFile, text)
}

// reachable returns the digests of all files that are reachable from a name.
func (s *Store) reachable(ctx context.Context) (map[string]bool, error) {
	index, err := s.index()
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, d := range index.Manifests {
		all[string(d.Digest)] = true
		text, err := s.Read(ctx, string(d.Digest))
		if err != nil {
			continue // without the manifest its module is unreachable
		}
		var m ocispec.Manifest
		if json.Unmarshal(text, &m) != nil {
			continue
		}
		all[string(m.Config.Digest)] = true
		for _, l := range m.Layers {
			all[string(l.Digest)] = true
		}
	}
	return all, nil
}
