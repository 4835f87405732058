package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/guest/templates"
)

// languages maps the arguments for the languages of functions to their names.
func languages() map[string]string {
	return map[string]string{"go": "Go", "c": "C", "as": "AssemblyScript"}
}

type newOptions struct{ dir string }

func newNewCommand(env *Env) *cobra.Command {
	var opts newOptions
	cmd := &cobra.Command{
		Use:   "new go|c|as NAME",
		Short: "Create a function from a template",
		Long: `Create a function from a template, in Go, C or AssemblyScript, with a manifest and a Makefile,
in the folder NAME.`,
		Example: `  outboard new go hello
  outboard new c hello --dir functions/hello`,
		Args:              countedArgs(2, 2, "name a language and the function: outboard new go|c|as NAME"),
		RunE:              func(_ *cobra.Command, args []string) error { return runNew(env, opts, args[0], args[1]) },
		ValidArgsFunction: completeLanguage,
	}
	cmd.Flags().StringVar(&opts.dir, "dir", "", "the folder (default NAME)")
	_ = cmd.MarkFlagDirname("dir") // the flag exists
	return cmd
}

func completeLanguage(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for key, name := range languages() {
		words = append(words, key+"\t"+name)
	}
	slices.Sort(words)
	return matching(words, typed), cobra.ShellCompDirectiveNoFileComp
}

func runNew(env *Env, opts newOptions, language, name string) error {
	if languages()[language] == "" {
		return usage("%q is not a language for functions: want go, c or as", language)
	}
	if strings.ContainsAny(name, `/\`) {
		return usage("%q is not a name of a function: for another folder use --dir", name)
	}
	dir := opts.dir
	if dir == "" {
		dir = name
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return outboard.Errorf(outboard.Conflict, "new", "the folder %s is not empty: name another one with --dir", dir)
	}
	files, err := templates.Write(dir, language, name)
	if err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintln(env.Stdout, filepath.Join(dir, filepath.FromSlash(f)))
	}
	fmt.Fprintf(env.Stderr, "build and deploy: cd %s && make && outboard deploy\n", dir)
	return nil
}
