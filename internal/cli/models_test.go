package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/cli"
)

// A pushed model's files are copied once, under their digests, and the command says where the model
// is ready.
func TestModelsPush(t *testing.T) {
	n := startNode(t)
	file, weights := writeFile(t, "mlp.onnx", "network"), writeFile(t, "mlp.data", "weights")
	config := writeFile(t, "model.yaml", "batch: 3\n")
	contains(t, n.succeed(t, "models", "push", "mlp", file, "--file", weights, "--config", config), "\nmodel mlp, version 1, is ready on harbour, dinghy\n")
	p := n.models.pushes[0]
	if p.Main != "mlp.onnx" || p.Config != "batch: 3\n" || p.ConfigFile != config || len(p.Files) != 2 {
		t.Errorf("the node was asked to push %+v", p)
	}
	for name, content := range map[string]string{"mlp.onnx": "network", "mlp.data": "weights"} {
		if digest := artifact.Digest([]byte(content)); p.Files[name] != digest {
			t.Errorf("%s is %s, want %s", name, p.Files[name], digest)
		}
		if kept, err := n.store.Read(t.Context(), p.Files[name]); err != nil || string(kept) != content {
			t.Errorf("the node has %q for %s: %v", kept, name, err)
		}
	}
	puts := n.puts
	contains(t, n.succeed(t, "models", "push", "mlp", file, "--no-wait"), "\nmodel mlp, version 2, is in force\n")
	if n.puts != puts {
		t.Errorf("a file that the node has was copied again")
	}
	var made client.PushedModel
	if err := json.Unmarshal([]byte(n.run(t, "", "models", "push", "mlp", file, "-o", "json").stdout), &made); err != nil || made.Version != 3 {
		t.Errorf("as JSON it is %+v: %v", made, err)
	}
}

func TestModelsPushChecksTheConfiguration(t *testing.T) {
	n := startNode(t)
	file := writeFile(t, "mlp.onnx", "network")
	contains(t, n.succeed(t, "models", "push", "mlp", file, "--check"), "\nno mistakes\n")
	if len(n.models.models) != 0 {
		t.Error("--check has pushed a model")
	}
	wrong := writeFile(t, "model.yaml", "batchez: 3\n")
	n.refuse(t, 10, "model.yaml:1: unknown member batchez", "models", "push", "mlp", file, "--config", wrong)
	n.refuse(t, 2, "two files have the name mlp.onnx", "models", "push", "mlp", file, "--file", writeFile(t, "mlp.onnx", "other"))
	n.refuse(t, 10, "is no file", "models", "push", "mlp", t.TempDir())
	n.refuse(t, 11, "no such file", "models", "push", "mlp", filepath.Join(t.TempDir(), "none.onnx"))
	n.refuse(t, 11, "no such file", "models", "push", "mlp", file, "--config", "none.yaml")
	n.refuse(t, 2, "name a model and a file", "models", "push", "mlp")
}

func TestModelsList(t *testing.T) {
	n := startNode(t)
	contains(t, n.succeed(t, "models"), "\nMODEL VERSION ENGINE STATE NODE SIZE PUSHED BY\n")
	n.succeed(t, "models", "push", "mlp", writeFile(t, "mlp.onnx", "network"))
	n.succeed(t, "models", "push", "broken", writeFile(t, "broken.onnx", "network"))
	broken := n.models.models[1]
	broken.State, broken.Reason, broken.Node = "failed", "no operator \x1b[2JFoo", ""
	out := n.succeed(t, "models", "list")
	contains(t, out, "\nmlp 1 onnx ready harbour 5MiB ", "\nbroken 1 onnx failed")
	if strings.Contains(out, "\x1b") {
		t.Errorf("a reason controls the terminal: %q", out)
	}
	var all []client.Model
	if err := json.Unmarshal([]byte(n.succeed(t, "models", "-o", "json")), &all); err != nil || len(all) != 2 || all[0].Name != "mlp" {
		t.Errorf("as JSON they are %+v: %v", all, err)
	}
	for _, verb := range []string{"show", "rollout", "rollback", "remove"} {
		if got := n.completions(t, "models", verb, "m"); !slices.Equal(got, []string{"mlp"}) {
			t.Errorf("models %s m is completed by %q", verb, got)
		}
	}
	for _, verb := range []string{"chat", "infer"} {
		if got := n.completions(t, verb, "m"); !slices.Equal(got, []string{"mlp"}) {
			t.Errorf("%s completes %q", verb, got)
		}
	}
	if got := n.completions(t, "models", "push", "mlp", ""); !slices.Equal(got, []string{"onnx", "gguf"}) {
		t.Errorf("the file of models push is completed by %q", got)
	}
}

func TestModelsShow(t *testing.T) {
	n := startNode(t)
	n.succeed(t, "models", "push", "mlp", writeFile(t, "mlp.onnx", "network"))
	contains(t, n.succeed(t, "models", "show", "mlp"),
		"\nmodel mlp, version 1, engine onnx, ready\n", "\ninput x FP32 [-1 2]\n", "\noutput y FP32 [-1 3]\n", "\nVERSION SIZE PUSHED BY\n", "\n1 5MiB ")
	contains(t, n.succeed(t, "models", "show", "mlp", "--why"), "\nharbour ready 1.5ms 2 requests wait\n", "\ndinghy unloaded excluded it has too little memory\n")
	var m client.ModelDetails
	if err := json.Unmarshal([]byte(n.succeed(t, "models", "show", "mlp", "-o", "json")), &m); err != nil || len(m.Placement) != 2 {
		t.Errorf("as JSON it is %+v: %v", m, err)
	}
	n.refuse(t, 11, `there is no model "none"`, "models", "show", "none")
}

func TestModelsVersions(t *testing.T) {
	n := startNode(t)
	file := writeFile(t, "mlp.onnx", "network")
	n.succeed(t, "models", "push", "mlp", file)
	n.succeed(t, "models", "push", "mlp", file)
	contains(t, n.succeed(t, "models", "rollback", "mlp"), "\nmodel mlp, version 3 (as 1), is ready on harbour, dinghy\n")
	contains(t, n.succeed(t, "models", "rollout", "mlp", "2", "--canary", "10", "--no-wait"), "\nmodel mlp, version 4 (as 2), is in force\n")
	contains(t, n.succeed(t, "models"), "\nmlp 4 (as 2) for 10 % onnx ")
	for _, all := range [][]string{{}, {"--canary", "100"}} {
		n.succeed(t, append([]string{"models", "rollout", "mlp", "2"}, all...)...)
		if list := n.succeed(t, "models", "-o", "json"); strings.Contains(list, "canary") {
			t.Errorf("rolled out with %v: %s", all, list)
		}
	}
	for _, percent := range []string{"0", "-1", "101"} {
		n.refuse(t, 2, "want a percentage from 1 to 100", "models", "rollout", "mlp", "2", "--canary", percent)
	}
	n.refuse(t, 11, "version 9 of mlp is not kept", "models", "rollout", "mlp", "9")
	n.refuse(t, 2, "`outboard models show mlp` lists them", "models", "rollout", "mlp", "newest")
	n.refuse(t, 11, `there is no model "none"`, "models", "rollback", "none")
	contains(t, n.succeed(t, "models", "remove", "mlp"), "\nmodel mlp was removed\n")
	n.refuse(t, 11, `there is no model "mlp"`, "models", "remove", "mlp")
}

// A key's secret is printed once, alone on the standard output, so that a script can take it.
func TestKeys(t *testing.T) {
	n := startNode(t)
	r := n.run(t, "", "keys", "create", "website", "--models", "small,mlp", "--requests-per-minute", "30", "--tokens-per-minute", "900", "--ttl", "24h")
	if r != (result{0, "obk-secret\n", ""}) {
		t.Errorf("it printed %+v", r)
	}
	ask := n.models.asked[0]
	if ask.Name != "website" || !slices.Equal(ask.Models, []string{"small", "mlp"}) || ask.RequestsPerMinute != 30 || ask.TokensPerMinute != 900 || time.Duration(ask.Life) != 24*time.Hour {
		t.Errorf("the node was asked for %+v", ask)
	}
	contains(t, n.succeed(t, "keys", "create", "operator", "--admin", "-o", "json"), `"token": "obk-secret"`, `"admin": true`)
	out := n.succeed(t, "keys")
	contains(t, out, "\nNAME ID MODELS LIMITS PER MINUTE EXPIRES REQUESTS REFUSED TOKENS LAST USED\n",
		"\nwebsite k1 small,mlp 30 requests, 900 tokens ", " 12 3 42 ", "\noperator (admin) k2 - - - 12 3 42 -\n")
	if strings.Contains(out, "obk-secret") {
		t.Errorf("a list has the secret:\n%s", out)
	}
	contains(t, n.succeed(t, "keys", "list", "-o", "json"), `"id": "k2"`)
	if got := n.completions(t, "keys", "revoke", ""); !slices.Equal(got, []string{"website", "operator"}) {
		t.Errorf("keys revoke is completed by %q", got)
	}
	contains(t, n.succeed(t, "keys", "revoke", "website"), "\nrevoked website (k1)\n")
	n.refuse(t, 11, `there is no key "website"`, "keys", "revoke", "website")
	n.refuse(t, 2, "must not be negative", "keys", "create", "x", "--ttl", "-1s")
	n.refuse(t, 2, "name the new key", "keys", "create")
	n.refuse(t, 2, "name one key", "keys", "revoke")
}

func TestInfer(t *testing.T) {
	n := startNode(t)
	contains(t, n.succeed(t, "infer", "echo", "-i", "[[1, 2.5]]"), `"name":"x"`, `"shape":[1,2]`, `"data":[1,2.5]`)
	contains(t, n.succeed(t, "infer", "pair", "-i", "a=[[1, 2]]", "-i", "b=[[3, 4]]", "--output", "b", "--version", "3", "--timeout", "7s"), `"name":"b"`, `"data":[3,4]`)
	last := n.models.infers[1]
	if last.Version != "3" || last.Timeout != 7*time.Second || !slices.Equal(last.Outputs, []string{"b"}) {
		t.Errorf("the model was asked for %+v", last)
	}
	array := filepath.Join(t.TempDir(), "out.npy")
	n.succeed(t, "infer", "echo", "-i", "x=[[8, 9]]", "-o", array)
	contains(t, n.succeed(t, "infer", "echo", "-i", "@"+array), `"data":[8,9]`)
	contains(t, n.succeed(t, "infer", "echo", "-i", "x=@"+writeFile(t, "in.json", "[[5, 6]]")), `"data":[5,6]`)

	n.refuse(t, 2, "want json or a file that ends in .npy", "infer", "echo", "-i", "[[1, 2]]", "-o", "out.txt")
	n.refuse(t, 2, "the model has 2 inputs: write NAME=VALUE", "infer", "pair", "-i", "[[1, 2]]")
	n.refuse(t, 2, `the model has no input "z": it has a, b`, "infer", "pair", "-i", "z=[[1, 2]]")
	n.refuse(t, 2, "`outboard chat` talks with models for text", "infer", "words", "-i", "[[1, 2]]")
	n.refuse(t, 10, "input x: ", "infer", "echo", "-i", `x=["one"]`)
	n.refuse(t, 10, "want a file that ends in .npy, .json, .png or .jpg", "infer", "echo", "-i", "x=@"+writeFile(t, "in.csv", "1,2"))
	n.refuse(t, 11, `there is no model "none"`, "infer", "none", "-i", "[[1, 2]]")
	if _, err := os.Stat("out.txt"); err == nil {
		t.Error("a file was written for a request that was refused")
	}
}

// A conversation is sent whole with each message: the model has no memory of its own.
func TestChat(t *testing.T) {
	n := startNode(t)
	n.models.models = []*client.ModelDetails{{Model: client.Model{Name: "small"}}}
	r := n.run(t, "the highest mountain?\nand the next?\n\nnot read\n", "chat", "small", "--system", "be brief", "--stats")
	if r.status != 0 || r.stdout != "Mont Blanc\nMont Blanc\n" {
		t.Fatalf("status %d: it printed %q, and says %s", r.status, r.stdout, r.stderr)
	}
	if strings.Count(r.stderr, " written, ") != 2 {
		t.Errorf("--stats printed %q", r.stderr)
	}
	conversations := n.models.chat.Conversations
	if len(conversations) != 2 {
		t.Fatalf("the model was asked %d times, want 2: an empty line ends the conversation", len(conversations))
	}
	var messages []client.ChatMessage
	if err := json.Unmarshal(conversations[1].Messages, &messages); err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, m := range messages {
		roles = append(roles, m.Role+": "+m.Content)
	}
	if got, want := strings.Join(roles, " | "), "system: be brief | user: the highest mountain? | assistant: Mont Blanc | user: and the next?"; got != want {
		t.Errorf("the second time it was sent\n%s\nwant\n%s", got, want)
	}
}

// An interrupt ends a conversation that waits for a message, without another line of input.
func TestChatIsInterrupted(t *testing.T) {
	n := startNode(t)
	n.models.models = []*client.ModelDetails{{Model: client.Model{Name: "small"}}}
	ctx, interrupt := context.WithCancel(t.Context())
	input, typed := io.Pipe()
	defer typed.Close()
	var stdout, stderr bytes.Buffer
	env := &cli.Env{
		Stdin: input, Stdout: &stdout, Stderr: io.MultiWriter(&stderr, interruptAt{"> ", interrupt}), Terminal: true,
		Environ: []string{"OUTBOARD_DATA=" + n.data},
	}
	if status := env.Run(ctx, []string{"chat", "small"}); status != 130 || !strings.HasSuffix(stderr.String(), "interrupted\n") {
		t.Errorf("status %d, and it says %q", status, stderr.String())
	}
}

// interruptAt calls interrupt when a text is written.
type interruptAt struct {
	text      string
	interrupt func()
}

func (i interruptAt) Write(p []byte) (int, error) {
	if string(p) == i.text {
		i.interrupt()
	}
	return len(p), nil
}

// An empty prompt is a prompt: the command does not wait for input instead.
func TestChatAnswersAnEmptyPrompt(t *testing.T) {
	n := startNode(t)
	if r := n.run(t, "not read\n", "chat", "small", "-p", ""); r.status != 0 || r.stdout != "Mont Blanc\n" {
		t.Fatalf("status %d: it printed %q, and says %s", r.status, r.stdout, r.stderr)
	}
	if got := string(n.models.chat.Conversations[0].Messages); strings.Contains(got, "not read") {
		t.Errorf("the model was sent %s", got)
	}
}

func TestChatAnswersOnePrompt(t *testing.T) {
	n := startNode(t)
	n.models.chat.Answer = "a\x1b[2Jb"
	if out := n.succeed(t, "chat", "small", "-p", "hello", "--temperature", "0", "--seed", "7", "--max-tokens", "40"); out != "a[2Jb\n" {
		t.Errorf("it printed %q: an answer must not control the terminal", out)
	}
	g := n.models.chat.Requests[0]
	if g.MaxTokens != 40 || g.Sampling.Seed != 7 || g.Sampling.Temperature != 0 {
		t.Errorf("the model was asked for %+v", g)
	}
	n.models.chat.Answer = "yes"
	var answer struct {
		Model, Answer string
		Generated     int `json:"generated_tokens"`
	}
	if err := json.Unmarshal([]byte(n.succeed(t, "chat", "small", "-p", "hello", "-o", "json")), &answer); err != nil || answer.Answer != "yes" || answer.Generated != 1 {
		t.Errorf("as JSON it is %+v: %v", answer, err)
	}
	n.refuse(t, 2, "must not be negative", "chat", "small", "--temperature", "-1")
	n.refuse(t, 2, "add --prompt", "chat", "small", "-o", "json")
	n.refuse(t, 2, "name one model", "chat")
	n.refuse(t, 11, `no model "none"`, "chat", "none", "-p", "hello")
	n.refuse(t, 11, `no model "none"`, "chat", "none")
}
