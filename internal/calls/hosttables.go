package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// What a node tells of its calls it asks the process that carries them for.

// Table is the live table of this node's calls.
func (h *Host) Table(ctx context.Context) ([]client.Calls, error) {
	rows := []client.Calls{}
	err := h.get(ctx, "/calls", &rows)
	return rows, err
}

// Policies are those in force on this node.
func (h *Host) Policies(ctx context.Context) ([]client.Policy, error) {
	list := []client.Policy{}
	err := h.get(ctx, "/policies", &list)
	return list, err
}

// Parse checks a text of policies.
func (h *Host) Parse(ctx context.Context, name string, text []byte) error {
	body, err := json.Marshal(client.PolicyFile{Name: name, Text: string(text)})
	if err != nil {
		return err
	}
	var p parsed
	if err := h.ask(ctx, http.MethodPost, "/parse", body, readJSON(&p)); err != nil {
		return err
	}
	if p.Error != "" {
		return outboard.Errorf(outboard.Invalid, "", "%s", p.Error)
	}
	return nil
}

// gatherLimit is how long the process may take to tell its metrics.
const gatherLimit = 5 * time.Second

// Gather implements prometheus.Gatherer. A process that can't be asked has no
// metrics: the node's own are told all the same.
func (h *Host) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(h.life, gatherLimit)
	defer cancel()
	var all []*dto.MetricFamily
	err := h.ask(ctx, http.MethodGet, "/metrics", nil, func(r io.Reader) error {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(r)
		for _, f := range families {
			all = append(all, f)
		}
		return err
	})
	if err != nil {
		h.log.Warn("the process that carries calls does not tell its metrics", "error", err)
		return nil, nil
	}
	return all, nil
}

func (h *Host) get(ctx context.Context, path string, into any) error {
	return h.ask(ctx, http.MethodGet, path, nil, readJSON(into))
}

func readJSON(into any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(into) }
}

// ask makes a request of the process, on a connection of its own.
func (h *Host) ask(ctx context.Context, method, path string, body []byte, read func(io.Reader) error) error {
	door := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return h.at().control.connect(msgHTTP) },
	}
	defer door.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://calls"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := door.RoundTrip(request)
	if err != nil {
		return outboard.Errorf(outboard.Unreachable, "the process that carries calls", "%w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the process that carries calls answers %s", response.Status)
	}
	return read(response.Body)
}
