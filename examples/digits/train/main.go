// Command train creates the model of the example digits: it draws digits like handwriting, trains a
// small network with them, and writes it as ONNX. The same program always writes the same file.
//
//	go run ./train digits.onnx
package main

import (
	"fmt"
	"image/png"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/outboard-run/outboard/examples/digits/picture"
)

const usage = `usage: train FILE.onnx            train the model (some seconds)
       train --draw DIGIT FILE.png   draw a digit that the model has not seen
       train --pictures COUNT FILE   write pictures for another program to learn from
       train --weights FILE FILE.onnx   write the model with weights that it has learned`

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] != "--draw":
		err = write(args[0])
	case len(args) == 3 && args[0] == "--draw" && len(args[1]) == 1 && args[1] >= "0" && args[1] <= "9":
		err = writePicture(int(args[1][0]-'0'), args[2])
	case len(args) == 3 && args[0] == "--pictures":
		var count int
		if count, err = strconv.Atoi(args[1]); err == nil && (count < 1 || count > maxPictures) {
			err = fmt.Errorf("%d pictures: want 1 to %d", count, maxPictures)
		}
		if err == nil {
			err = writePictures(count, args[2])
		}
	case len(args) == 3 && args[0] == "--weights":
		err = writeWeights(args[1], args[2])
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

// The size of the training: pictures for each pass, and passes.
const (
	samples = 4000
	passes  = 6
	tests   = 1000
	rate    = .02
	// maxPictures bounds a file of pictures.
	maxPictures = 1_000_000
)

func write(file string) error {
	n, right := train(samples, passes)
	fmt.Fprintf(os.Stdout, "%d of %d new pictures are recognized\n", right, tests)
	return os.WriteFile(file, n.graph().Encode(), 0o644) //nolint:gosec // a model is no secret
}

// train returns a network, and how many of the tests it recognizes.
func train(samples, passes int) (*network, int) {
	r := source(1)
	n := newNetwork(picture.Pixels, r)
	for range passes {
		for i := range samples {
			in, digit := sample(i, r)
			n.learn(in, digit, rate)
		}
	}
	return n, n.countRecognized()
}

// countRecognized returns how many of the tests the network recognizes.
func (n *network) countRecognized() int {
	right := 0
	fresh := source(2)
	for i := range tests {
		if in, digit := sample(i, fresh); n.guess(in) == digit {
			right++
		}
	}
	return right
}

func source(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // pictures that are the same every time
}

// sample returns a prepared picture, and the digit that it shows.
func sample(i int, r *rand.Rand) ([]float32, int) {
	for {
		if in, ok := picture.Prepare(Draw(i%10, r)); ok {
			return in, i % 10
		}
	}
}

func writePicture(digit int, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := png.Encode(f, Draw(digit, source(3))); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}
