package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	// commandLine is a line of a block that a reader would type: after a prompt
	// or at the line's beginning.
	commandLine = regexp.MustCompile(`^(?:[a-z]*\$ +)?outboard( [^#]*)?(?:#.*)?$`)
	// inlineCode is a command within a sentence.
	inlineCode = regexp.MustCompile("`outboard ([^`]*)`")
	quotes     = strings.NewReplacer("'", "", `"`, "", "[", "", "]", "", "\\", "", "...", "")
)

// Every command that the documents show is one, and has the flags that it is
// shown with.
func TestDocumentsShowCommandsThatAre(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range documented(string(text)) {
			found++
			if err := understand(command); err != nil {
				t.Errorf("%s: outboard %s: %v", filepath.Base(file), command, err)
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d commands: does this test still read the documents?", found)
	}
}

// Every command that a message or an example of a help text names is one, has the flags that it is
// shown with, and is spelled as the help spells it.
func TestMessagesNameCommandsThatAre(t *testing.T) {
	found := 0
	check := func(where, command string) {
		found++
		if err := errors.Join(understand(command), spelledAsInHelp(command)); err != nil {
			t.Errorf("%s: outboard %s: %v", where, command, err)
		}
	}
	for _, dir := range []string{"../../internal", "../../client"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if filepath.Base(path) == "habits.go" { // it describes the aliases
				return nil
			}
			text, err := os.ReadFile(path)
			for _, m := range inlineCode.FindAllStringSubmatch(string(text), -1) {
				if !strings.HasPrefix(m[1], "internal") {
					check(path, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var examples func(*cobra.Command)
	examples = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			if m := commandLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil && !cmd.Hidden {
				command, _, _ := strings.Cut(m[1], " | ")
				check(cmd.CommandPath(), command)
			}
		}
		for _, sub := range cmd.Commands() {
			examples(sub)
		}
	}
	examples(newRootCommand(&Env{}))
	if found < 200 {
		t.Errorf("found only %d commands", found)
	}
}

// spelledAsInHelp returns an error if a command is named by an alias.
func spelledAsInHelp(command string) error {
	words := strings.Fields(command)
	cmd := newRootCommand(&Env{})
	for _, word := range words {
		next := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		if next < 0 {
			return nil
		}
		if cmd = cmd.Commands()[next]; cmd.Name() != word {
			return usage("the help names it %s", cmd.CommandPath())
		}
	}
	return nil
}

// documented are the arguments of the commands in a text.
func documented(text string) []string {
	var commands []string
	inBlock := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inBlock = !inBlock
			continue
		}
		if m := commandLine.FindStringSubmatch(line); inBlock && m != nil {
			commands = append(commands, m[1])
		}
		if !inBlock {
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				commands = append(commands, m[1])
			}
		}
	}
	return commands
}

// understand parses a command's flags, without running it.
func understand(command string) error {
	words := strings.Fields(quotes.Replace(command))
	if at := indexOf(words, "--"); at >= 0 {
		words = words[:at]
	}
	root := newRootCommand(&Env{})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("x")
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	return checkFlags(cmd, rest)
}

// checkFlags looks every flag up. Values are not parsed: TOKEN and HOST:PORT
// stand for some.
func checkFlags(cmd *cobra.Command, words []string) error {
	for _, word := range words {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		var flag *pflag.Flag
		switch {
		case word == "--help", word == "-h", word == "-":
			continue
		case strings.HasPrefix(word, "--"):
			if flag = cmd.Flags().Lookup(name); flag == nil {
				flag = cmd.InheritedFlags().Lookup(name)
			}
		case strings.HasPrefix(word, "-"):
			flag = cmd.Flags().ShorthandLookup(name)
		default:
			continue
		}
		if flag == nil {
			return usage("no flag %s", word)
		}
	}
	return nil
}

func indexOf(words []string, word string) int {
	for i, w := range words {
		if w == word {
			return i
		}
	}
	return -1
}
