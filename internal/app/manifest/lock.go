package manifest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Lock pins what references of modules meant when the app was deployed: the digest
// of the OCI manifest that each led to. It lies beside the manifest, and belongs into
// version control with it.
type Lock struct {
	// Modules are the digests by reference, as it stands in the manifest.
	Modules map[string]string
}

// LockName is the name of the lock of a manifest: app.lock beside app.yaml.
func LockName(manifest string) string {
	return strings.TrimSuffix(manifest, filepath.Ext(manifest)) + ".lock"
}

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ParseLock reads a lock. An empty text is an empty lock. Its error is Problems.
func ParseLock(name string, text []byte) (Lock, error) {
	r := &reader{file: name, places: map[string]place{}}
	l := Lock{Modules: map[string]string{}}
	if len(bytes.TrimSpace(text)) == 0 {
		return l, nil
	}
	if n := r.document(text); n != nil {
		r.mapping(at{n, ""}, "a lock", members{"modules": func(v at) {
			r.pairs(v, "modules is a mapping of references, as in: oci:HOST/REPO:TAG: sha256:...", func(key *yaml.Node, v at) {
				if !digest.MatchString(v.Value) {
					r.wrong(v.Node, "%q is no digest: delete the file, and deploy writes it anew", v.Value)
				}
				l.Modules[key.Value] = v.Value
			})
		}})
	}
	if len(r.problems) > 0 {
		return Lock{}, r.problems.ordered()
	}
	return l, nil
}

// Pin notes what a reference means now. It is an error when it meant something else
// before, unless update says that this is wanted.
func (l *Lock) Pin(ref, now string, update bool) error {
	if l.Modules == nil {
		l.Modules = map[string]string{}
	}
	if was := l.Modules[ref]; was != "" && was != now && !update {
		bare, _, _ := strings.Cut(ref, "@")
		return fmt.Errorf("%s is %s now, and was %s when the app was last deployed: take what is there now with `outboard deploy --update`, or keep what was with %s@%s",
			ref, now, was, bare, was)
	}
	l.Modules[ref] = now
	return nil
}

// Keep forgets all references but those that are still used.
func (l *Lock) Keep(refs []string) {
	kept := map[string]string{}
	for _, ref := range refs {
		if d := l.Modules[ref]; d != "" {
			kept[ref] = d
		}
	}
	l.Modules = kept
}

// Text is the lock as its file has it, empty for an empty one. Equal locks have equal texts.
func (l *Lock) Text() ([]byte, error) {
	if len(l.Modules) == 0 {
		return nil, nil
	}
	text, err := yaml.Marshal(map[string]map[string]string{"modules": l.Modules})
	return append([]byte("# What the modules' references meant at the last `outboard deploy`. Keep it with the manifest.\n"), text...), err
}
