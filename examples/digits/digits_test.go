package digits_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/examples/stage"
)

func TestDigitsExample(t *testing.T) {
	app := stage.Deploy(t)
	dir := t.TempDir()
	train := filepath.Join(dir, "train")
	command(t, "go", "build", "-o", train, "./train")
	if code, body := post(t, app, nil); code != http.StatusBadRequest {
		t.Errorf("an empty body: %d %s", code, body)
	}
	draw := func(digit int) []byte {
		file := filepath.Join(dir, "digit.png")
		command(t, train, "--draw", strconv.Itoa(digit), file)
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	if code, body := post(t, app, draw(7)); code != http.StatusServiceUnavailable || !strings.Contains(body, "model") {
		t.Errorf("before the model was pushed: %d %s", code, body)
	}
	command(t, train, filepath.Join(dir, "digits.onnx"))
	if out, err := app.Node.Output(t.Context(), "models", "push", "digits", filepath.Join(dir, "digits.onnx")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for digit := range 10 {
		code, body := post(t, app, draw(digit))
		var answer struct {
			Digit         int
			Probabilities []float64
		}
		if err := json.Unmarshal([]byte(body), &answer); code != http.StatusOK || err != nil || answer.Digit != digit || len(answer.Probabilities) != 10 {
			t.Errorf("a %d: %d %s", digit, code, body)
		}
	}
}

func command(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

func post(t *testing.T, app *stage.App, picture []byte) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, app.URL+"/recognize", bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	p, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Body.Close()
	text, err := io.ReadAll(p.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p.StatusCode, string(text)
}
