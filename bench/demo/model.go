package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/examples/digits/picture"
)

// showModel trains the model of examples/digits, pushes it to harbour, and makes it recognize
// digits that dinghy sends.
func showModel(ctx context.Context, r *rig.Rig, dir string, out io.Writer) error {
	fmt.Fprintln(out, "[4/4] A model: harbour serves a network that recognizes drawn digits, and dinghy asks for results.")
	train := filepath.Join(dir, "train")
	file, config := filepath.Join(dir, "digits.onnx"), filepath.Join(dir, "model.yaml")
	if err := errors.Join(runGo(ctx, "build", "-o", train, "./examples/digits/train"), os.WriteFile(config, []byte("nodes: [harbour]\n"), 0o600)); err != nil {
		return err
	}
	if text, err := exec.CommandContext(ctx, train, file).CombinedOutput(); err != nil {
		return fmt.Errorf("train: %w: %s", err, text)
	}
	fmt.Fprintln(out, "harbour$ outboard models push digits digits.onnx")
	if text, err := r.Node("harbour").Output(ctx, "models", "push", "digits", file, "--config", config); err != nil {
		return fmt.Errorf("push the model: %w: %s", err, text)
	}
	fmt.Fprintln(out, "dinghy$ for digit in 0 1 2 3 4 5 6 7 8 9; do outboard infer digits -i input=$digit.json; done")
	right := 0
	for digit := range 10 {
		recognized, probability, err := recognize(ctx, r, train, dir, digit)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "      a drawn %d is recognized as %d (%.1f %%)\n", digit, recognized, 100*probability)
		if recognized == digit {
			right++
		}
	}
	if right < 9 {
		return fmt.Errorf("%d of 10 digits were recognized", right)
	}
	return nil
}

func runGo(ctx context.Context, args ...string) error {
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w: %s", args, err, text)
	}
	return nil
}

// recognize draws a digit and returns the digit that the pool's model recognizes.
func recognize(ctx context.Context, r *rig.Rig, train, dir string, digit int) (recognized int, probability float64, err error) {
	drawn := filepath.Join(dir, strconv.Itoa(digit)+".png")
	if text, err := exec.CommandContext(ctx, train, "--draw", strconv.Itoa(digit), drawn).CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("draw: %w: %s", err, text)
	}
	input := filepath.Join(dir, strconv.Itoa(digit)+".json")
	if err := prepare(drawn, input); err != nil {
		return 0, 0, err
	}
	text, err := r.Node("dinghy").Output(ctx, "infer", "digits", "-i", "@"+input)
	if err != nil {
		return 0, 0, fmt.Errorf("infer: %w: %s", err, text)
	}
	var outputs []struct{ Data []float64 }
	if err := json.Unmarshal([]byte(text), &outputs); err != nil || len(outputs) != 1 || len(outputs[0].Data) != 10 {
		return 0, 0, fmt.Errorf("infer printed %.200q: %w", text, err)
	}
	probabilities := outputs[0].Data
	probability = slices.Max(probabilities)
	return slices.Index(probabilities, probability), probability, nil
}

// prepare writes a picture as the input of the model.
func prepare(drawn, input string) error {
	f, err := os.Open(drawn)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := png.Decode(f)
	if err != nil {
		return err
	}
	values, ok := picture.Prepare(p)
	if !ok {
		return fmt.Errorf("%s has no ink", drawn)
	}
	text, err := json.Marshal([][]float32{values})
	if err != nil {
		return err
	}
	return os.WriteFile(input, text, 0o600)
}
