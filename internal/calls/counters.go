package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// counters are the counters of processes. The counters of a process that has ended are added to
// those of its successors, so that no number falls at an upgrade.
type counters struct {
	Calls    []client.Calls
	Policies []client.Policy
	// Metrics are in Prometheus's text format.
	Metrics []byte

	families map[string]*dto.MetricFamily
}

// add adds other counters. Rates and calls in flight end with their process.
func (c *counters) add(other *counters) {
	for i := range other.Calls {
		row := &other.Calls[i]
		*row = client.Calls{Service: row.Service, Method: row.Method, Total: row.Total, Acted: row.Acted}
	}
	c.Calls = mergeCalls(c.Calls, other.Calls)
	c.Policies = mergePolicies(c.Policies, other.Policies, true)
	c.families = mergeFamilies(c.families, other.families, false)
}

// totals are the counters of the processes that have ended. The lock is held while they
// are added to those of living processes, so that no process counts twice or not at all.
type totals struct {
	mu    sync.RWMutex
	ended counters
}

// add adds the counters of a process, which it sends in its last message.
func (t *totals) add(c *child, f *os.File) error {
	var more counters
	err := decodeFile(f, &more)
	if err != nil {
		return err
	}
	if more.families, err = parseMetrics(bytes.NewReader(more.Metrics)); err != nil {
		return fmt.Errorf("metrics of process %d: %w", c.number, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended.add(&more)
	c.counted = true
	return nil
}

// uncounted returns the retiring processes that are not in the totals. The lock of totals is
// held.
func (h *Host) uncounted() []*child {
	return slices.DeleteFunc(h.retiring(), func(c *child) bool { return c.counted })
}

// Table returns the live table of this node's calls, including calls in earlier processes.
func (h *Host) Table(ctx context.Context) ([]client.Calls, error) {
	h.totals.mu.RLock()
	defer h.totals.mu.RUnlock()
	rows := []client.Calls{}
	if err := h.currentChild().getJSON(ctx, "/calls", &rows); err != nil {
		return nil, err
	}
	for _, c := range h.uncounted() {
		var more []client.Calls
		if err := c.getJSON(ctx, "/calls", &more); err == nil {
			rows = mergeCalls(rows, more) // else it has just died
		}
	}
	return mergeCalls(rows, h.totals.ended.Calls), nil
}

// Policies lists the policies in force on this node.
func (h *Host) Policies(ctx context.Context) ([]client.Policy, error) {
	h.totals.mu.RLock()
	defer h.totals.mu.RUnlock()
	list := []client.Policy{}
	if err := h.currentChild().getJSON(ctx, "/policies", &list); err != nil {
		return nil, err
	}
	for _, c := range h.uncounted() {
		var more []client.Policy
		if err := c.getJSON(ctx, "/policies", &more); err == nil {
			list = mergePolicies(list, more, false)
		}
	}
	return mergePolicies(list, h.totals.ended.Policies, false), nil
}

// Parse checks a text of policies.
func (h *Host) Parse(ctx context.Context, name string, text []byte) error {
	request, err := json.Marshal(client.PolicyFile{Name: name, Text: string(text)})
	if err != nil {
		return err
	}
	var result parseResult
	if err := h.currentChild().request(ctx, http.MethodPost, "/parse", request, decodeInto(&result)); err != nil {
		return err
	}
	if result.Error != "" {
		return outboard.Errorf(outboard.Invalid, "", "%s", result.Error)
	}
	return nil
}

// gatherLimit is how long the process may take to return its metrics.
const gatherLimit = 5 * time.Second

// Gather implements prometheus.Gatherer. The node's own metrics are reported even when the
// process does not return its own.
func (h *Host) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(h.life, gatherLimit)
	defer cancel()
	h.totals.mu.RLock()
	defer h.totals.mu.RUnlock()
	all, err := h.currentChild().gather(ctx)
	if err != nil {
		h.log.Warn("the process that carries calls does not return its metrics", "error", err)
		return nil, nil
	}
	for _, c := range h.uncounted() {
		if more, err := c.gather(ctx); err == nil {
			all = mergeFamilies(all, more, true)
		}
	}
	return sortedFamilies(mergeFamilies(all, h.totals.ended.families, false)), nil
}

func (c *child) gather(ctx context.Context) (all map[string]*dto.MetricFamily, err error) {
	err = c.request(ctx, http.MethodGet, "/metrics", nil, func(r io.Reader) (err error) {
		all, err = parseMetrics(r)
		return err
	})
	return all, err
}

func parseMetrics(r io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

func decodeInto(into any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(into) }
}

func (c *child) getJSON(ctx context.Context, path string, into any) error {
	return c.request(ctx, http.MethodGet, path, nil, decodeInto(into))
}

// request makes an HTTP request to the process, on a new connection.
func (c *child) request(ctx context.Context, method, path string, body []byte, read func(io.Reader) error) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return c.conn.OpenStream(msgHTTP, nil) },
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://calls"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return outboard.Errorf(outboard.Unreachable, "the process that carries calls", "%w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the process that carries calls returned %s", response.Status)
	}
	return read(response.Body)
}
