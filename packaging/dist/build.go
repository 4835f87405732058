package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
)

// embedded is the path at which the program embeds its driver library.
const embedded = "internal/accel/opencl/driver/lib/libopencl.so.gz"

// build compiles the program. An overlay embeds the architecture's libraries in place of the
// libraries that `make build` left in the tree.
func (r *release) build(ctx context.Context, arch, binary string) error {
	replace := map[string]string{}
	libraries := maps.Clone(r.engines[arch])
	if libraries == nil {
		libraries = map[string]string{}
	}
	libraries[embedded] = r.libraries[arch]
	for at, file := range libraries {
		library, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		if _, err := os.Stat(library); err != nil {
			return err
		}
		path, err := filepath.Abs(at)
		if err != nil {
			return err
		}
		replace[path] = library
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := binary + ".overlay.json"
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	flags := "-s -w -X github.com/outboard-run/outboard/internal/cli.version=" + r.version
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", file, "-ldflags", flags, "-o", binary, "./cmd/outboard")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
