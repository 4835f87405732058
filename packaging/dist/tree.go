package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/internal/cli"
)

// An entry is a file of a release, with its path below the installation's prefix (/usr).
type entry struct {
	path    string
	mode    os.FileMode
	content []byte
}

// unitPath is the path below /usr at which systemd finds the unit.
const unitPath = "lib/systemd/system/outboard.service"

// tree returns all files of an installation, ordered by path.
func (r *release) tree(binary string) ([]entry, error) {
	var tree []entry
	add := func(to, from string, mode os.FileMode) error {
		content, err := os.ReadFile(from)
		tree = append(tree, entry{to, mode, content})
		return err
	}
	if err := add("bin/outboard", binary, 0o755); err != nil {
		return nil, err
	}
	if err := add(unitPath, "packaging/outboard.service", 0o644); err != nil {
		return nil, err
	}
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "SECURITY.md", "CHANGELOG.md"} {
		if err := add("share/doc/outboard/"+name, name, 0o644); err != nil {
			return nil, err
		}
	}
	root := cli.Commands()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	completions, err := completions(root)
	if err != nil {
		return nil, err
	}
	tree = append(tree, completions...)
	for name, text := range manual(root, r.number(), r.time) {
		tree = append(tree, entry{"share/man/man1/" + name, 0o644, []byte(text)})
	}
	slices.SortFunc(tree, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return tree, nil
}

// completions returns the completions of shells, each at the path at which a distribution's shell
// finds it.
func completions(root *cobra.Command) ([]entry, error) {
	var all []entry
	for _, shell := range []struct {
		path  string
		write func(b *bytes.Buffer) error
	}{
		{"share/bash-completion/completions/outboard", func(b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) }},
		{"share/zsh/vendor-completions/_outboard", func(b *bytes.Buffer) error { return root.GenZshCompletion(b) }},
		{"share/fish/vendor_completions.d/outboard.fish", func(b *bytes.Buffer) error { return root.GenFishCompletion(b, true) }},
	} {
		var b bytes.Buffer
		if err := shell.write(&b); err != nil {
			return nil, fmt.Errorf("completion %s: %w", path.Base(shell.path), err)
		}
		all = append(all, entry{shell.path, 0o644, b.Bytes()})
	}
	return all, nil
}
