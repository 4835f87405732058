package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// sectionRows bounds the rows of each table of `outboard status`, and statusLines the lines of all of
// them together, so that the whole output fits on a screen.
const (
	sectionRows = 6
	statusLines = 43
)

// A statusSection is one table of a status.
type statusSection struct {
	// title gives the number of things; list is the command that lists all of them.
	title, list string
	titles      []string
	rows        [][]string
}

// write writes the status as text: a line about this node, a table for each kind of thing in the
// pool, and the problems.
func (s *poolStatus) write(w io.Writer, now time.Time) error {
	printSafe(w, "node %s, %s, version %s, up %s\n", clean(string(s.Node.Node)), s.Node.Addr, s.Node.Version, age(now, s.Node.Started))
	sections := []statusSection{s.nodeSection(now), s.deviceSection(now)}
	if len(s.Waiting) > 0 {
		sections = append(sections, s.waitingSection(now))
	}
	sections = append(sections, s.appSection(), s.modelSection(), s.callSection())
	limit := rowLimit(sections)
	for _, section := range sections {
		if err := section.write(w, limit); err != nil {
			return err
		}
	}
	return s.writeProblems(w)
}

// rowLimit returns the number of rows that each section may show.
func rowLimit(sections []statusSection) int {
	for limit := sectionRows; ; limit-- {
		total := 0
		for i := range sections {
			total += sections[i].lines(limit)
		}
		if total <= statusLines || limit == 1 {
			return limit
		}
	}
}

// lines returns the number of lines that write writes.
func (t *statusSection) lines(limit int) int {
	const title, titles, more = 2, 1, 1 // an empty line is before the title
	switch rows := len(t.rows); {
	case rows == 0:
		return title
	case rows <= limit:
		return title + titles + rows
	}
	return title + titles + limit + more
}

func (t *statusSection) write(w io.Writer, limit int) error {
	fmt.Fprintf(w, "\n%s\n", t.title)
	if len(t.rows) == 0 {
		return nil
	}
	shown := t.rows[:min(len(t.rows), limit)]
	err := writeTable(w, "  ", t.titles, shown)
	if more := len(t.rows) - len(shown); more > 0 {
		fmt.Fprintf(w, "  and %d more: `outboard %s`\n", more, t.list)
	}
	return err
}

func (s *poolStatus) writeProblems(w io.Writer) error {
	if len(s.Problems) == 0 {
		_, err := fmt.Fprint(w, "\nNo problems.\n")
		return err
	}
	_, err := fmt.Fprintf(w, "\nProblems: %d\n", len(s.Problems))
	for _, p := range s.Problems {
		_, lineErr := fmt.Fprintf(w, "  %s: %s\n    %s\n", clean(p.Subject), clean(p.Text), clean(p.Remedy))
		err = errors.Join(err, lineErr)
	}
	return err
}

func (s *poolStatus) nodeSection(now time.Time) statusSection {
	t := statusSection{title: fmt.Sprintf("Nodes: %d", len(s.Nodes)), list: "nodes", titles: []string{"NODE", "ADDRESS", "DEVICES", "STATE", "VERSION", "UP"}}
	for _, n := range s.Nodes {
		t.rows = append(t.rows, nodeRow(n, now))
	}
	return t
}

func (s *poolStatus) deviceSection(now time.Time) statusSection {
	t := statusSection{
		title: fmt.Sprintf("Devices: %d, with %d leases", len(s.Devices), len(s.Leases)), list: "devices",
		titles: []string{"DEVICE", "TYPE", "MEMORY", "FREE", "LEASED BY", "NAME"},
	}
	for _, d := range s.Devices {
		t.rows = append(t.rows, []string{
			string(d.ID), string(d.Type), d.Memory.String(), d.Free.String(), orDash(grantsText(outboard.Live(d.Leases, now))), d.Name,
		})
	}
	return t
}

func (s *poolStatus) waitingSection(now time.Time) statusSection {
	t := statusSection{
		title: fmt.Sprintf("Requests that wait for devices: %d", len(s.Waiting)), list: "status -o json",
		titles: []string{"HOLDER", "DEVICES", "MEMORY", "SELECTOR", "WAITS", "PROGRAM"},
	}
	for _, r := range s.Waiting {
		memory := "all"
		if r.Memory > 0 {
			memory = r.Memory.String()
		}
		waits := "-"
		if !r.Since.IsZero() {
			waits = age(now, r.Since)
		}
		t.rows = append(t.rows, []string{
			string(r.Holder), strconv.Itoa(r.Count), memory, orDash(r.Selector.String()), waits, orDash(r.Program),
		})
	}
	return t
}

// grantsText lists the holders of a device with their programs.
func grantsText(grants []outboard.Grant) string {
	var all []string
	for _, g := range grants {
		all = append(all, strings.TrimSpace(string(g.Holder)+" "+g.Program))
	}
	return strings.Join(all, ", ")
}

func (s *poolStatus) appSection() statusSection {
	t := statusSection{title: fmt.Sprintf("Apps: %d", len(s.Apps)), list: "apps", titles: []string{"APP", "TENANT", "VERSION", "STATE", "NODES"}}
	for _, a := range s.Apps {
		t.rows = append(t.rows, []string{a.Name, a.Tenant, versionText(a), stateText(a.State, a.Reason), nodesText(a.Nodes)})
	}
	return t
}

func (s *poolStatus) modelSection() statusSection {
	t := statusSection{title: fmt.Sprintf("Models: %d", len(s.Models)), list: "models", titles: []string{"MODEL", "VERSION", "ENGINE", "STATE", "NODE", "SIZE"}}
	for i := range s.Models {
		m := &s.Models[i]
		t.rows = append(t.rows, []string{
			m.Name, modelVersionText(m.Version, m.Of, m.Canary), m.Engine, stateText(m.State, m.Reason), orDash(string(m.Node)), m.Size.String(),
		})
	}
	return t
}

func (s *poolStatus) callSection() statusSection {
	var rate, errors float64
	for _, c := range s.Calls {
		rate, errors = rate+c.Rate, errors+c.Errors
	}
	t := statusSection{
		title: fmt.Sprintf("Calls of this node's programs: %s/s, %s errors/s; %d services in the pool", perSecond(rate), perSecond(errors), len(s.Services)),
		list:  "calls", titles: []string{"SERVICE", "METHOD", "CALLS/s", "ERRORS/s", "P99", "IN FLIGHT"},
	}
	busiest := slices.SortedStableFunc(slices.Values(s.Calls), func(a, b client.Calls) int { return cmp.Compare(b.Rate, a.Rate) })
	for _, c := range busiest {
		t.rows = append(t.rows, []string{c.Service, c.Method, perSecond(c.Rate), perSecond(c.Errors), short(c.P99), strconv.FormatInt(c.InFlight, 10)})
	}
	return t
}

// age returns how long ago a time was: 0 for one of a clock that is ahead of this machine's.
func age(now, since time.Time) string { return max(now.Sub(since), 0).Round(time.Second).String() }
