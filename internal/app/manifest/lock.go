package manifest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// Lock pins the modules of registries when an app is deployed. It lies beside the manifest, and
// belongs into version control with it.
type Lock struct {
	// Modules are the digests of the OCI manifests by their references in the app's manifest.
	Modules map[string]string
	// Content are the digests of the modules themselves, by the same references. A node that has
	// such a file needs no registry.
	Content map[string]string
}

// LockName returns the name of the lock of a manifest: app.lock beside app.yaml.
func LockName(manifest string) string {
	return strings.TrimSuffix(manifest, filepath.Ext(manifest)) + ".lock"
}

var digest = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

// ParseLock reads a lock. An empty text is an empty lock. Its error is Problems.
func ParseLock(name string, text []byte) (Lock, error) {
	r := &reader{file: name, places: map[string]position{}}
	l := Lock{Modules: map[string]string{}, Content: map[string]string{}}
	if len(bytes.TrimSpace(text)) == 0 {
		return l, nil
	}
	if n := r.document(text); n != nil {
		digests := func(name string, to map[string]string) func(pathNode) {
			return func(v pathNode) {
				r.pairs(v, name+" is a mapping of references, as in: oci:HOST/REPO:TAG: sha256:...", func(key *yaml.Node, v pathNode) {
					if !digest.MatchString(v.Value) {
						r.report(v.Node, "%q is no digest: delete the file, and deploy writes it anew", v.Value)
					}
					to[key.Value] = v.Value
				})
			}
		}
		r.mapping(pathNode{n, ""}, "a lock", members{"modules": digests("modules", l.Modules), "content": digests("content", l.Content)})
	}
	if len(r.problems) > 0 {
		return Lock{}, r.problems.ordered()
	}
	return l, nil
}

// Pin records the digest that a reference resolves to. A digest that differs from the pinned one is
// an error, unless update is set.
func (l *Lock) Pin(ref, now string, update bool) error {
	if l.Modules == nil {
		l.Modules = map[string]string{}
	}
	if was := l.Modules[ref]; was != "" && was != now && !update {
		bare, _, _ := strings.Cut(ref, "@")
		return fmt.Errorf("%s is %s now, and was %s when the app was last deployed: take what is there now with `outboard deploy --update`, or keep what was with %s@%s",
			ref, now, was, bare, was)
	}
	if l.Modules[ref] != now {
		delete(l.Content, ref)
	}
	l.Modules[ref] = now
	return nil
}

// SetContent records the digest of the module that a pinned reference leads to.
func (l *Lock) SetContent(ref, digest string) {
	if l.Content == nil {
		l.Content = map[string]string{}
	}
	l.Content[ref] = digest
}

// Retain removes all references except refs.
func (l *Lock) Retain(refs []string) {
	kept, content := map[string]string{}, map[string]string{}
	for _, ref := range refs {
		if d := l.Modules[ref]; d != "" {
			kept[ref] = d
		}
		if d := l.Content[ref]; d != "" && kept[ref] != "" {
			content[ref] = d
		}
	}
	l.Modules, l.Content = kept, content
}

// Text returns the content of the lock's file, empty for an empty lock. Equal locks have equal
// texts.
func (l *Lock) Text() ([]byte, error) {
	if len(l.Modules) == 0 {
		return nil, nil
	}
	all := map[string]map[string]string{"modules": l.Modules}
	if len(l.Content) > 0 {
		all["content"] = l.Content
	}
	text, err := yaml.Marshal(all)
	return append([]byte("# What the modules' references meant at the last `outboard deploy`. Keep it with the manifest.\n"), text...), err
}
