package placement

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// Why explains the assignment of one step.
type Why struct {
	Step string          `json:"step"`
	Node outboard.NodeID `json:"node"`
	// Start and End are when it would run.
	Start time.Duration `json:"start"`
	End   time.Duration `json:"end"`
	// WaitsFor is the last condition that it waits for: "inputs", "artifact", "slot" or "nothing".
	WaitsFor string `json:"waits_for"`
	// Others are the estimates for the other nodes, with all other steps unchanged.
	Others []Alternative `json:"others,omitempty"`
}

// Alternative is another node for one step.
type Alternative struct {
	Node outboard.NodeID `json:"node"`
	// Completion is when the last step would end.
	Completion time.Duration `json:"completion"`
	// Crossing is the number of bytes that would be copied between nodes.
	Crossing outboard.Bytes `json:"crossing"`
	// End is when the step would end.
	End  time.Duration `json:"end"`
	Fits bool          `json:"fits"`
	// Reason is the text why it was not chosen.
	Reason string `json:"reason"`
}

func (e *evaluator) explain(node []int, chosen Estimate) []Why {
	why := make([]Why, len(e.Steps))
	for i := range e.Steps {
		t := chosen.Steps[i]
		why[i] = Why{Step: e.Steps[i].Name, Node: e.Nodes[node[i]].ID, Start: t.Start, End: t.End, WaitsFor: t.waitsFor()}
		for n := range e.Nodes {
			if n != node[i] {
				why[i].Others = append(why[i].Others, e.alternative(node, i, n, &chosen))
			}
		}
	}
	return why
}

func (t *Timing) waitsFor() string {
	if t.Start == 0 {
		return "nothing"
	}
	if t.Start == t.Inputs {
		return "inputs"
	}
	if t.Start == t.Fetched {
		return "artifact"
	}
	return "slot"
}

func (e *evaluator) alternative(node []int, step, n int, chosen *Estimate) Alternative {
	here := node[step]
	node[step] = n
	est := e.estimate(node)
	node[step] = here
	return Alternative{
		Node: e.Nodes[n].ID, Completion: est.Completion, Crossing: est.Crossing, End: est.Steps[step].End, Fits: est.Fits,
		Reason: reason(&est, chosen),
	}
}

func reason(other, chosen *Estimate) string {
	switch {
	case !other.Fits:
		return "memory would not suffice"
	case other.Completion > chosen.Completion:
		return fmt.Sprintf("the whole would take %v longer", other.Completion-chosen.Completion)
	case other.Crossing > chosen.Crossing:
		return fmt.Sprintf("%v more would cross between nodes", other.Crossing-chosen.Crossing)
	case other.Nodes > chosen.Nodes:
		return "one more node would be used"
	}
	return "it is as good"
}

// String describes the decision, a line for each step.
func (d Decision) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "takes %v on %d nodes, %v cross between them; on one node it would take %v\n",
		d.Completion.Round(time.Microsecond), d.Nodes, d.Crossing, d.Together.Completion.Round(time.Microsecond))
	for _, w := range d.Why {
		fmt.Fprintf(&b, "%s on %s: %v to %v, waits for %s", w.Step, w.Node, w.Start.Round(time.Microsecond), w.End.Round(time.Microsecond), w.WaitsFor)
		for _, o := range w.Others {
			fmt.Fprintf(&b, "; on %s %s", o.Node, o.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
