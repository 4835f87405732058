// Command infer is the function that the benchmark of models calls: it computes with a model a
// number of times and answers with the duration of each.
package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/outboard-run/outboard/guest/go/nn"
	"github.com/outboard-run/outboard/guest/go/web"
)

func init() { //nolint:gochecknoinits // a function's handler is there before main
	web.Handle(http.HandlerFunc(infer))
}

func main() {}

// maxOutput is larger than the outputs of the benchmark's models, in bytes.
const maxOutput = 1 << 20

// infer computes with the model of the query, n times, and answers with the times in milliseconds.
func infer(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	input := nn.Floats([]float32{-1, 0, 1, 2}, 1, 4)
	if r.FormValue("model") == "encoder" {
		input = nn.Tensor{Dimensions: []uint32{1, 128}, Type: nn.Int64, Data: make([]byte, 8*128)}
	}
	model, err := nn.Load(r.FormValue("model"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	times := make([]float64, 0, n)
	for range n {
		began := time.Now()
		if _, err := model.Infer(maxOutput, input); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		times = append(times, float64(time.Since(began))/float64(time.Millisecond))
	}
	_ = json.NewEncoder(w).Encode(times) // a response does not fail
}
