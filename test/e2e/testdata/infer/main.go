// Command infer is a function for tests of models: it computes with the model "sign" as often as the
// request says, and answers with the outputs, without those that repeat the one before.
package main

import (
	"bytes"
	"fmt"
	"strconv"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/nn"
)

func init() { guest.Handle(handle) }

func main() {}

func handle(request []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(request))
	if err != nil {
		return nil, err
	}
	model, err := nn.Load("sign")
	if err != nil {
		return nil, err
	}
	var answer bytes.Buffer
	last := ""
	for range n {
		y, err := model.Infer(64, nn.Floats([]float32{-1, 0, 1, 2}, 1, 4))
		if err != nil {
			return nil, err
		}
		if text := fmt.Sprint(nn.ParseFloats(y)); text != last {
			last = text
			answer.WriteString(text)
		}
	}
	return answer.Bytes(), nil
}
