package artifact

import (
	"bytes"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Whatever a registry sends: refused, or exactly what it packs again.
func FuzzUnpack(f *testing.F) {
	module := []byte("\x00asm\x01\x00\x00\x00")
	p, err := pack(module, Info{Author: "shop"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.manifest, p.config, p.module)
	f.Add([]byte(`{"schemaVersion":2,"layers":[{}]}`), []byte(`{"component":{}}`), []byte("hello"))
	f.Add([]byte(`{"config":{"mediaType":"application/vnd.wasm.config.v0+json","size":-1},"layers":[{"mediaType":"application/wasm","digest":"sha256:x"}]}`), []byte(`[]`), module)
	f.Fuzz(func(t *testing.T, manifest, config, module []byte) {
		p, err := unpack(ocispec.MediaTypeImageManifest, manifest, config, module)
		if err != nil {
			return
		}
		if !bytes.Equal(p.module, module) || !bytes.HasPrefix(module, []byte("\x00asm\x01\x00\x00\x00")) {
			t.Errorf("took %q", module)
		}
		if m, err := readManifest(ocispec.MediaTypeImageManifest, manifest); err != nil || string(m.Layers[0].Digest) != Digest(module) {
			t.Errorf("its manifest is about %v: %v", m.Layers, err)
		}
	})
}
