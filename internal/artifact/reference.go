package artifact

import (
	"net"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// A Reference names a module: "HOST/REPO:TAG" in a registry, "NAME:TAG" in the node's
// store. Both may end with "@sha256:...", the digest that the manifest must have.
type Reference struct {
	// Registry is the host, with its port where there is one; "" for the store.
	Registry   string
	Repository string
	Tag        string // "" if the reference has only a digest
	Digest     string // of the OCI manifest, "" if the reference has only a tag
}

var (
	repository = lazyregexp.New(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tag        = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	host       = lazyregexp.New(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$`)
)

// ParseReference parses a reference. The part before the first slash is a host if it
// has a dot or a port, or is localhost.
func ParseReference(text string) (Reference, error) {
	var r Reference
	rest := text
	if first, behind, ok := strings.Cut(rest, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		r.Registry, rest = first, behind
	}
	rest, digest, pinned := strings.Cut(rest, "@")
	r.Repository, r.Tag, _ = strings.Cut(rest, ":")
	r.Digest = digest
	switch {
	case r.Registry != "" && !host.MatchString(r.Registry):
		return r, wrongReference(text, "the host %q is none", r.Registry)
	case !repository.MatchString(r.Repository):
		return r, wrongReference(text, "a repository has lower-case letters, digits, and single . _ - between them")
	case strings.HasSuffix(rest, ":") || r.Tag != "" && !tag.MatchString(r.Tag):
		return r, wrongReference(text, "the tag %q has other things than letters, digits, . _ and -", r.Tag)
	case pinned && CheckDigest(r.Digest) != nil:
		return r, wrongReference(text, "%w", CheckDigest(r.Digest))
	case r.Tag == "" && !pinned:
		return r, wrongReference(text, "it says not which version: write %s:TAG", text)
	}
	return r, nil
}

func wrongReference(text, format string, args ...any) error {
	return outboard.Errorf(outboard.Invalid, "reference \""+text+"\"", format, args...)
}

// String returns the reference in the form that ParseReference reads.
func (r Reference) String() string {
	s := r.Name()
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// Name returns the reference without its digest.
func (r Reference) Name() string {
	s := r.Repository
	if r.Registry != "" {
		s = r.Registry + "/" + s
	}
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	return s
}

// Local reports whether the reference is to the node's store.
func (r Reference) Local() bool { return r.Registry == "" }

// version returns the digest, or else the tag, that is requested from the registry.
func (r Reference) version() string {
	if r.Digest != "" {
		return r.Digest
	}
	return r.Tag
}

// loopback reports whether a registry is on this machine, where no TLS is used.
func loopback(registry string) bool {
	name := registry
	if h, _, err := net.SplitHostPort(registry); err == nil {
		name = h
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
