package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionOptions struct{ output format }

// version is set by the linker: see the Makefile.
var version string //nolint:gochecknoglobals // the linker can set nothing else

// build describes this binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(env *Env) *cobra.Command {
	var opts versionOptions
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version, commit and platform of this binary",
		Example: "  outboard version\n  outboard version -o json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return runVersion(env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runVersion(env *Env, opts versionOptions) error {
	b := thisBuild()
	return opts.output.print(env, b, []string{"VERSION", "COMMIT", "GO", "PLATFORM"},
		[][]string{{b.Version, orDash(b.Commit), b.Go, b.Platform}})
}

func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	switch v := info.Main.Version; {
	case version != "":
		b.Version = version
	case v != "" && v != "(devel)":
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
