package client_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/datadir"
)

// Each method sends one request, and names that users chose are escaped in its path.
func TestRequestPaths(t *testing.T) {
	type call = func(context.Context, *client.Client) error
	only := func(_ any, err error) error { return err }
	got := make(chan string, 1)
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.URL.RequestURI()
		_, _ = w.Write([]byte("null"))
	}))
	for want, f := range map[string]call{
		"GET /v1/models":                   func(ctx context.Context, c *client.Client) error { return only(c.Models(ctx)) },
		"GET /v1/models/a%2Fb":             func(ctx context.Context, c *client.Client) error { return only(c.Model(ctx, "a/b")) },
		"POST /v1/models":                  func(ctx context.Context, c *client.Client) error { return only(c.PushModel(ctx, client.ModelPush{})) },
		"POST /v1/models/a%2Fb/rollback":   func(ctx context.Context, c *client.Client) error { return only(c.RollbackModel(ctx, "a/b")) },
		"DELETE /v1/models/a%2Fb":          func(ctx context.Context, c *client.Client) error { return c.RemoveModel(ctx, "a/b") },
		"GET /v1/model-keys":               func(ctx context.Context, c *client.Client) error { return only(c.ModelKeys(ctx)) },
		"DELETE /v1/model-keys/a%2Fb":      func(ctx context.Context, c *client.Client) error { return only(c.RevokeModelKey(ctx, "a/b")) },
		"GET /v1/jobs/a%2Fb":               func(ctx context.Context, c *client.Client) error { return only(c.Job(ctx, "a/b")) },
		"DELETE /v1/jobs/a%2Fb":            func(ctx context.Context, c *client.Client) error { return c.CancelJob(ctx, "a/b") },
		"POST /v1/jobs/a%2Fb/resume":       func(ctx context.Context, c *client.Client) error { return c.ResumeJob(ctx, "a/b") },
		"GET /v1/data/harbour%2Fdigits":    func(ctx context.Context, c *client.Client) error { return only(c.Dataset(ctx, "harbour/digits")) },
		"DELETE /v1/data/digits":           func(ctx context.Context, c *client.Client) error { return c.DeleteDataset(ctx, "digits") },
		"PUT /v1/data/d?digest=sha256%3A1": func(ctx context.Context, c *client.Client) error { return only(c.PutDataset(ctx, "d", "sha256:1")) },
		"DELETE /v1/nodes/a%2Fb?away=1h0m0s": func(ctx context.Context, c *client.Client) error {
			return only(c.RemoveNode(ctx, "a/b", time.Hour))
		},
		"GET /v1/network/nearest?node=a&node=b": func(ctx context.Context, c *client.Client) error { return only(c.Nearest(ctx, "a", "b")) },
		"GET /v1/endpoints?service=shop.Cart":   func(ctx context.Context, c *client.Client) error { return only(c.Endpoints(ctx, "shop.Cart")) },
		"DELETE /v1/sessions/s1":                func(ctx context.Context, c *client.Client) error { return c.KillSession(ctx, "s1") },
		"POST /v1/stop":                         func(ctx context.Context, c *client.Client) error { return c.Stop(ctx) },
		"GET /v1/devices?selector=type%3Dgpu": func(ctx context.Context, c *client.Client) error {
			var s outboard.Selector
			if err := s.Set("type=gpu"); err != nil {
				return err
			}
			return only(c.Devices(ctx, s))
		},
	} {
		if err := f(t.Context(), c); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if sent := <-got; sent != want {
			t.Errorf("it sent %s, want %s", sent, want)
		}
	}
}

// While a node starts or stops, the error does not say to start one.
func TestNodeThatStarts(t *testing.T) {
	c := &client.Client{Data: t.TempDir()}
	lock, err := datadir.Acquire(c.Data)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	_, err = c.Models(t.Context())
	if outboard.KindOf(err) != outboard.NoPool || !strings.Contains(err.Error(), "is starting or stopping") {
		t.Errorf("the error is %v", err)
	}
}

// Without a node the error says how to start one.
func TestNoNode(t *testing.T) {
	c := &client.Client{Data: t.TempDir()}
	_, err := c.Models(t.Context())
	want := "no node runs with the data folder " + c.Data + ": start one with "
	if outboard.KindOf(err) != outboard.NoPool || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
		t.Errorf("the error is %v", err)
	}
}
