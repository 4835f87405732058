package ask_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/examples/stage"
)

func TestAskExample(t *testing.T) {
	app := stage.Deploy(t)
	if code, body := ask(t, app, ""); code != http.StatusBadRequest {
		t.Errorf("without a question: %d %s", code, body)
	}
	const question = "When does it leave?"
	if code, body := ask(t, app, question); code != http.StatusServiceUnavailable || !strings.Contains(body, "model") {
		t.Errorf("before the model was pushed: %d %s", code, body)
	}
	file := filepath.Join(t.TempDir(), "assistant.gguf")
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./train", file).CombinedOutput(); err != nil {
		t.Fatalf("train: %v: %s", err, out)
	}
	if out, err := app.Node.Output(t.Context(), "models", "push", "assistant", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	code, answer := ask(t, app, question)
	if code != http.StatusOK || !strings.HasPrefix(answer, "I") || len(answer) < 2 { // as the lines of what it has read begin
		t.Errorf("answered %d %q", code, answer)
	}
	if code, again := ask(t, app, question); code != http.StatusOK || again != answer {
		t.Errorf("answered %d %q, and %q before", code, again, answer)
	}
	if code, body := ask(t, app, "Wann fährt sie?"); code != http.StatusBadRequest || !strings.Contains(body, "ä") {
		t.Errorf("a letter that the model lacks: %d %s", code, body)
	}
}

// ask posts a question about a text.
func ask(t *testing.T, app *stage.App, question string) (status int, body string) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"text": "The ferry leaves at noon.", "question": question})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, app.URL+"/", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Body.Close()
	answer, err := io.ReadAll(p.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p.StatusCode, string(answer)
}
