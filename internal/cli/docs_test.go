package cli

import (
	"os"
	"path/filepath"
	"regexp"
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
		case word == "--help", word == "-h":
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
