// Package compress sums gradients over the nodes of a job with fewer bytes than they have.
//
// Half precision sends float16 values, as PyTorch's fp16_compress_hook does. Top-k sends the
// elements of the greatest magnitude and adds the others to the same buffer's next call (error
// feedback: Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018). Loss lets a
// congested node drop the least important parts of a sum, up to a bound: see
// [collective.Group.Lost].
package compress

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/collective"
)

// A Method is a way to sum with fewer bytes.
type Method uint8

// The methods.
const (
	None Method = iota
	Half
	TopK
	Loss
	// Store is no compression: sums travel through an object store.
	Store
)

// A Spec says how gradients are summed between nodes. The zero value sends them as they are.
type Spec struct {
	Method Method
	// Fraction is the share of the elements that TopK sends, and of the parts that Loss may drop.
	Fraction float64
	// Datagrams makes Loss send parts in datagrams, which the network may lose, instead of streams.
	Datagrams bool
}

const (
	// minBytes is the size from which sums are compressed: below it, latency decides.
	minBytes = 32 << 10
	// maxCount bounds the elements that TopK can number.
	maxCount = 1 << 32
	// minFraction and maxFraction bound the share of the elements that TopK sends.
	minFraction, maxFraction = 1e-5, 0.5
)

// withDatagrams is the end of the text of a Spec with Datagrams.
const withDatagrams = ",datagrams"

// Parse reads a Spec: "" or "plain", "fp16", "topk=FRACTION", "loss=FRACTION",
// "loss=FRACTION,datagrams", "store".
func Parse(text string) (Spec, error) {
	text, datagrams := strings.CutSuffix(text, withDatagrams)
	name, value, given := strings.Cut(text, "=")
	fraction, err := strconv.ParseFloat(value, 64)
	switch {
	case datagrams && name != "loss":
	case !given && (name == "" || name == "plain"):
		return Spec{}, nil
	case !given && name == "fp16":
		return Spec{Method: Half}, nil
	case !given && name == "store":
		return Spec{Method: Store}, nil
	case name == "topk" && err == nil && fraction >= minFraction && fraction <= maxFraction:
		return Spec{Method: TopK, Fraction: fraction}, nil
	case name == "loss" && err == nil && fraction >= 0.001 && fraction <= float64(collective.MaxLoss)/1000:
		return Spec{Method: Loss, Fraction: fraction, Datagrams: datagrams}, nil
	}
	return Spec{}, fmt.Errorf("%.40q is no way to send gradients: want plain, fp16, topk=FRACTION (%v to %v), loss=FRACTION (0.001 to %v, and with datagrams behind a comma) or store",
		text, minFraction, maxFraction, float64(collective.MaxLoss)/1000)
}

// String returns the Spec as Parse reads it.
func (s Spec) String() string {
	switch s.Method {
	case Half:
		return "fp16"
	case TopK:
		return fmt.Sprintf("topk=%v", s.Fraction)
	case Loss:
		text := fmt.Sprintf("loss=%v", s.Fraction)
		if s.Datagrams {
			text += withDatagrams
		}
		return text
	case Store:
		return "store"
	default:
		return "plain"
	}
}

// Explain describes the Spec for people.
func (s Spec) Explain() string {
	const which = "; sums and averages of float32 from 32KiB on, all others as they are"
	switch s.Method {
	case Half:
		return "gradients between nodes are sent as float16" + which
	case TopK:
		return fmt.Sprintf("of gradients between nodes the greatest %.4g %% are sent, what is left is added to the next ones%s", 100*s.Fraction, which)
	case Loss:
		if s.Datagrams {
			return fmt.Sprintf("gradients between nodes are sent in datagrams; of the least important parts at most %.4g %% may be lost%s", 100*s.Fraction, which)
		}
		return fmt.Sprintf("of gradients between nodes the least important parts may be dropped under congestion, at most %.4g %%%s", 100*s.Fraction, which)
	case Store:
		return "gradients between nodes travel through the object store, by the pipelined scatter-reduce" + which
	default:
		return "gradients between nodes are sent as they are"
	}
}

// Describe describes, for people, the sums that were sent by the Spec, "" if there were none.
func (s Spec) Describe(t Stats) string {
	switch {
	case t.Calls == 0:
		return ""
	case s.Datagrams:
		return fmt.Sprintf("%d sums of %v: %d of %d parts were lost, and %d lost ones were sent again", t.Calls, outboard.Bytes(t.Bytes), t.Dropped, t.Offered, t.Repeated)
	case s.Method == Loss:
		return fmt.Sprintf("%d sums of %v: %d of %d parts were dropped", t.Calls, outboard.Bytes(t.Bytes), t.Dropped, t.Offered)
	case s.Method == Store:
		return fmt.Sprintf("%d sums of %v went through the object store", t.Calls, outboard.Bytes(t.Bytes))
	default:
		return fmt.Sprintf("%d sums of %v were sent as %v", t.Calls, outboard.Bytes(t.Bytes), outboard.Bytes(t.Sent))
	}
}

// applies reports whether a call is summed with fewer bytes.
func (s Spec) applies(c *collective.Call) bool {
	return s.Method != None && c.Operation == collective.AllReduce && c.Element == collective.Float32 && !c.Ordered &&
		(c.Reduction == collective.Sum || c.Reduction == collective.Average) && c.Bytes() >= minBytes && c.Count < maxCount
}
