package artifact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/outboard-run/outboard"
)

// The media types of the layout.
const (
	ConfigType = "application/vnd.wasm.config.v0+json"
	LayerType  = "application/wasm"
)

const (
	maxManifest  = 4 << 20
	architecture = "wasm"
	wasip1       = "wasip1"
	wasip2       = "wasip2"
)

// Info is the metadata of a module.
type Info struct {
	Created time.Time
	Author  string
}

// config is the layout's config.
type config struct {
	Created      *time.Time      `json:"created,omitempty"`
	Author       string          `json:"author,omitempty"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	LayerDigests []digest.Digest `json:"layerDigests"`
	Component    json.RawMessage `json:"component,omitempty"`
}

// packed is a module with its OCI config and manifest.
type packed struct {
	info                     Info
	module, config, manifest []byte
}

// descriptor returns the descriptor of the manifest.
func (p *packed) descriptor() ocispec.Descriptor {
	return describe(ocispec.MediaTypeImageManifest, p.manifest)
}

func describe(mediaType string, content []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
}

// pack creates the config and the manifest of a module. It is deterministic.
func pack(module []byte, info Info) (*packed, error) {
	if err := checkModule(module); err != nil {
		return nil, err
	}
	layer := describe(LayerType, module)
	c := config{Author: info.Author, Architecture: architecture, OS: wasip1, LayerDigests: []digest.Digest{layer.Digest}}
	if !info.Created.IsZero() {
		created := info.Created.UTC().Truncate(time.Second)
		c.Created = &created
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    describe(ConfigType, text),
		Layers:    []ocispec.Descriptor{layer},
	})
	return &packed{info, module, text, manifest}, err
}

// checkModule returns an error if content is not a core module.
func checkModule(module []byte) error {
	switch {
	case bytes.HasPrefix(module, []byte("\x00asm\x01\x00\x00\x00")):
		return nil
	case bytes.HasPrefix(module, []byte("\x00asm")) && len(module) >= 8 && module[6] == 1:
		return refused("it is a component: build a core module, for wasip1")
	}
	return refused("it is no WebAssembly module: build one, as `outboard new go NAME` shows")
}

func refused(format string, args ...any) error {
	return outboard.Errorf(outboard.Invalid, "", format, args...)
}

// readManifest decodes and validates the manifest of a module.
func readManifest(mediaType string, text []byte) (ocispec.Manifest, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return m, refused("its manifest is no JSON: %w", err)
	}
	switch {
	case mediaType != ocispec.MediaTypeImageManifest || m.MediaType != "" && m.MediaType != mediaType:
		return m, refused("it is a %s, and a module is a %s: name one module, not a list of them", ignoreNotExist(mediaType), ocispec.MediaTypeImageManifest)
	case m.Config.MediaType != ConfigType:
		return m, refused("it is no WebAssembly module: its config is a %s, not a %s", ignoreNotExist(m.Config.MediaType), ConfigType)
	case len(m.Layers) != 1:
		return m, refused("it has %d layers, and a module has one (Wasm OCI artifact, version 0)", len(m.Layers))
	case m.Layers[0].MediaType != LayerType:
		return m, refused("its layer is a %s, not a %s", ignoreNotExist(m.Layers[0].MediaType), LayerType)
	case m.Layers[0].Size < 0 || m.Layers[0].Size > maxModule || m.Config.Size < 0 || m.Config.Size > maxManifest:
		return m, refused("it is too large: a module has %v at most", outboard.Bytes(maxModule))
	}
	for _, d := range []ocispec.Descriptor{m.Config, m.Layers[0]} {
		if err := CheckDigest(string(d.Digest)); err != nil {
			return m, err
		}
	}
	return m, nil
}

func ignoreNotExist(s string) string {
	if s == "" {
		return "thing without a type"
	}
	return s
}

// readConfig decodes and validates the config of the module in layer.
func readConfig(text []byte, layer ocispec.Descriptor) (Info, error) {
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return Info{}, refused("its config is no JSON: %w", err)
	}
	switch {
	case c.Architecture != architecture:
		return Info{}, refused("its architecture is %q, not %q", c.Architecture, architecture)
	case c.OS == wasip2 || len(c.Component) > 0 && !bytes.Equal(c.Component, []byte("null")):
		return Info{}, refused("it is a component (%s): only core modules for %s can be run", c.OS, wasip1)
	case c.OS != wasip1:
		return Info{}, refused("it is made for %q, not %q", c.OS, wasip1)
	case len(c.LayerDigests) != 1 || c.LayerDigests[0] != layer.Digest:
		return Info{}, refused("its config is about other layers: %v, not %s", c.LayerDigests, layer.Digest)
	}
	info := Info{Author: c.Author}
	if c.Created != nil {
		info.Created = *c.Created
	}
	return info, nil
}

// unpack validates a module with its config and manifest.
func unpack(mediaType string, manifest, config, module []byte) (*packed, error) {
	m, err := readManifest(mediaType, manifest)
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		what    string
		content []byte
		d       ocispec.Descriptor
	}{{"config", config, m.Config}, {"layer", module, m.Layers[0]}} {
		if found := Digest(part.content); found != string(part.d.Digest) {
			return nil, fmt.Errorf("its %s: %w", part.what, differs(string(part.d.Digest), found))
		}
	}
	info, err := readConfig(config, m.Layers[0])
	if err != nil {
		return nil, err
	}
	return &packed{info, module, config, manifest}, checkModule(module)
}
