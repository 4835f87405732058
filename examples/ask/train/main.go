// Command train writes a small language model, for the example's questions: it counts the pairs of
// letters of a text, and knows only these counts.
//
//	train FILE.gguf
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/outboard-run/outboard/internal/model/gguf"
)

// context bounds a conversation in tokens, which are letters here.
const context = 4096

// template writes the messages one below the other. The answer follows the last line.
const template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"

// story is the text from which the model learns. An answer begins like its lines, and may end at a
// full stop.
const story = `
The ferry leaves the harbour at noon and is at the island an hour later.
It takes forty people, two carts and the post, and it does not wait.
In winter the ferry stays in the harbour, and the people of the island read.`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: train FILE.gguf")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := train(f); err != nil {
		_ = f.Close() // the file is incomplete anyway
		return err
	}
	return f.Close()
}

// train writes the model. Questions may have all printable letters of ASCII, so the vocabulary
// includes letters that the story lacks.
func train(w io.Writer) error {
	var lacking []byte
	for c := byte(' '); c <= '~'; c++ {
		if !strings.Contains(story, string(c)) {
			lacking = append(lacking, c)
		}
	}
	_, err := gguf.CountBigram(string(lacking)+story, context, template).Builder().WriteTo(w)
	return err
}
