package calls

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// What a node tells of its calls it asks the process that carries them for.

// Table is the live table of this node's calls, those in earlier processes included.
func (h *Host) Table(ctx context.Context) ([]client.Calls, error) {
	h.books.RLock()
	defer h.books.RUnlock()
	rows := []client.Calls{}
	if err := h.get(ctx, "/calls", &rows); err != nil {
		return nil, err
	}
	for _, c := range h.counting() {
		var more []client.Calls
		if err := c.ask(ctx, http.MethodGet, "/calls", nil, readJSON(&more)); err == nil {
			rows = merge(rows, more) // else it has died just now
		}
	}
	return merge(rows, h.past.Calls), nil
}

// counting are the processes that are being replaced and not in the ledger yet.
func (h *Host) counting() []*child {
	return slices.DeleteFunc(h.earlier(), func(c *child) bool { return c.noted })
}

// earlier are the processes that are being replaced.
func (h *Host) earlier() []*child {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*child
	for _, c := range h.children {
		if c.retiring {
			all = append(all, c)
		}
	}
	return all
}

// merge adds the rows of another process.
func merge(rows, more []client.Calls) []client.Calls {
	for _, m := range more {
		at := slices.IndexFunc(rows, func(r client.Calls) bool { return r.Service == m.Service && r.Method == m.Method })
		if at < 0 {
			rows = append(rows, m)
			continue
		}
		r := &rows[at]
		r.Acted = maps.Clone(r.Acted)
		if m.Rate > r.Rate {
			r.P50, r.P99 = m.P50, m.P99 // those of most calls
		}
		r.Rate, r.Errors, r.Sent, r.Received = r.Rate+m.Rate, r.Errors+m.Errors, r.Sent+m.Sent, r.Received+m.Received
		r.InFlight, r.Total = r.InFlight+m.InFlight, r.Total+m.Total
		for policy, n := range m.Acted {
			if r.Acted == nil {
				r.Acted = map[string]uint64{}
			}
			r.Acted[policy] += n
		}
	}
	slices.SortFunc(rows, func(a, b client.Calls) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Method, b.Method))
	})
	return rows
}

// Policies are those in force on this node.
func (h *Host) Policies(ctx context.Context) ([]client.Policy, error) {
	h.books.RLock()
	defer h.books.RUnlock()
	list := []client.Policy{}
	if err := h.get(ctx, "/policies", &list); err != nil {
		return nil, err
	}
	for _, c := range h.counting() {
		var more []client.Policy
		if err := c.ask(ctx, http.MethodGet, "/policies", nil, readJSON(&more)); err == nil {
			list = mergePolicies(list, more, false)
		}
	}
	return mergePolicies(list, h.past.Policies, false), nil
}

// Parse checks a text of policies.
func (h *Host) Parse(ctx context.Context, name string, text []byte) error {
	body, err := json.Marshal(client.PolicyFile{Name: name, Text: string(text)})
	if err != nil {
		return err
	}
	var p parsed
	if err := h.at().ask(ctx, http.MethodPost, "/parse", body, readJSON(&p)); err != nil {
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
	h.books.RLock()
	defer h.books.RUnlock()
	all, err := h.at().gather(ctx)
	if err != nil {
		h.log.Warn("the process that carries calls does not tell its metrics", "error", err)
		return nil, nil
	}
	for _, c := range h.counting() {
		if more, err := c.gather(ctx); err == nil {
			all = mergeFamilies(all, more, true)
		}
	}
	return inOrder(mergeFamilies(all, h.past.families, false)), nil
}

func (c *child) gather(ctx context.Context) (all map[string]*dto.MetricFamily, err error) {
	err = c.ask(ctx, http.MethodGet, "/metrics", nil, func(r io.Reader) (err error) {
		all, err = parseMetrics(r)
		return err
	})
	return all, err
}

func parseMetrics(r io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

func (h *Host) get(ctx context.Context, path string, into any) error {
	return h.at().ask(ctx, http.MethodGet, path, nil, readJSON(into))
}

func readJSON(into any) func(io.Reader) error {
	return func(r io.Reader) error { return json.NewDecoder(r).Decode(into) }
}

// ask makes a request of the process, on a connection of its own.
func (c *child) ask(ctx context.Context, method, path string, body []byte, read func(io.Reader) error) error {
	door := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return c.control.connect(msgHTTP) },
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
