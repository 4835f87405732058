package tiers

import (
	"encoding/json"
	"fmt"
)

// reply is a plan in the form that ranks read: a letter for each tensor's tier (d, h or f), and the
// event after which it is read back.
type reply struct {
	Tiers    string  `json:"tiers"`
	Prefetch []int   `json:"prefetch"`
	Seconds  float64 `json:"seconds"`
	Waited   float64 `json:"waited"`
	Peak     int64   `json:"peak"`
	Exceeds  bool    `json:"exceeds"`
}

const letters = "dhf"

// PlanJSON plans a trace that a rank has measured. It returns the plan in the form that the rank
// reads, and a line that describes it for people.
func PlanJSON(text []byte) (answer []byte, description string, err error) {
	var t Trace
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, "", err
	}
	if err := t.Check(); err != nil {
		return nil, "", fmt.Errorf("a malformed trace: %w", err)
	}
	p := Best(&t)
	r := reply{Seconds: p.Predicted.Seconds, Waited: p.Predicted.Waited, Peak: p.Predicted.Peak, Exceeds: p.Predicted.Exceeds}
	names := make([]byte, len(p.Placements))
	for i, at := range p.Placements {
		names[i] = letters[at.Tier]
		r.Prefetch = append(r.Prefetch, at.Prefetch)
	}
	r.Tiers = string(names)
	answer, err = json.Marshal(r)
	return answer, p.Describe(&t), err
}
