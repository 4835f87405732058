package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An Operation is a collective operation.
type Operation uint8

// The operations. Their buffers have Count elements; of n ranks, part i is the i-th of n parts.
const (
	// AllReduce leaves the reduction of all ranks' elements in each rank.
	AllReduce Operation = iota + 1
	// ReduceScatter leaves the reduction of part (rank) in that part; the other parts are
	// undefined.
	ReduceScatter
	// AllGather distributes part (rank) of each rank to all.
	AllGather
	// Broadcast distributes the elements of Root.
	Broadcast
	// AllToAll exchanges part j of rank i with part i of rank j. Count is a multiple of n.
	AllToAll
	// Barrier has no elements: no rank returns before all ranks have called.
	Barrier
)

var operations = [...]string{
	AllReduce: "all-reduce", ReduceScatter: "reduce-scatter", AllGather: "all-gather",
	Broadcast: "broadcast", AllToAll: "all-to-all", Barrier: "barrier",
}

func (o Operation) valid() bool { return o >= AllReduce && int(o) < len(operations) }

func (o Operation) String() string {
	if !o.valid() {
		return fmt.Sprintf("Operation(%d)", uint8(o))
	}
	return operations[o]
}

// A Call is an operation that a rank requests. All ranks of a group must make the same calls,
// except for the Site, in the same order.
type Call struct {
	Operation Operation
	Element   Element
	Reduction Reduction // of AllReduce and ReduceScatter
	Count     int       // elements of a rank's buffer
	// Whole is not 0 for a part of an AllReduce that a rank makes in several calls: the number of
	// elements of all parts, of which this call has those from First on. Ranks that disagree on the
	// whole disagree on each part.
	Whole, First int
	Root         int // of Broadcast
	// Ordered asks for the reduction in the order of ranks, whose result does not depend on
	// the algorithm, nor on the number of bytes.
	Ordered bool
	// Loss is the share of the parts of a sum that may be dropped, in thousandths: see
	// [Group.Lost]. Only an AllReduce of Float32 or Float64 that is not Ordered may lose parts.
	Loss int
	// Store sends an AllReduce through the group's object store.
	Store bool
	// Site is where the program makes the call, for the error of ranks that disagree.
	Site string
}

// maxCount keeps the bytes of a call within an int. MaxLoss bounds the loss of a call, in
// thousandths.
const (
	maxCount = 1 << 40
	MaxLoss  = 500
)

// Check returns an error if n ranks can't make the call.
func (c *Call) Check(n int) error {
	switch {
	case !c.Operation.valid():
		return fmt.Errorf("unknown operation %d", c.Operation)
	case c.Count < 0 || c.Count > maxCount:
		return fmt.Errorf("%s of %d elements", c.Operation, c.Count)
	case c.Operation != Barrier && !c.Element.valid():
		return fmt.Errorf("%s: unknown type of element %d", c.Operation, c.Element)
	case (c.Operation == AllReduce || c.Operation == ReduceScatter) && !c.Reduction.valid():
		return fmt.Errorf("%s: unknown reduction %d", c.Operation, c.Reduction)
	case c.Operation == Broadcast && (c.Root < 0 || c.Root >= n):
		return fmt.Errorf("broadcast from rank %d of %d", c.Root, n)
	case c.Operation == AllToAll && c.Count%n != 0:
		return fmt.Errorf("all-to-all of %d elements between %d ranks: not a multiple", c.Count, n)
	case c.Operation == Barrier && c.Count != 0:
		return errors.New("a barrier has no elements")
	}
	if err := c.checkPart(); err != nil {
		return err
	}
	if c.Store && (c.Operation != AllReduce || c.Ordered || c.Loss != 0) {
		return fmt.Errorf("%s: only an all-reduce in any order, without loss, travels through a store", c.Operation)
	}
	return c.checkLoss()
}

func (c *Call) checkPart() error {
	if c.Whole == 0 && c.First == 0 {
		return nil
	}
	if c.Operation != AllReduce || c.First < 0 || c.Whole > maxCount || c.First > c.Whole || c.Count > c.Whole-c.First {
		return fmt.Errorf("%s: %d elements from %d on are no part of an all-reduce of %d", c.Operation, c.Count, c.First, c.Whole)
	}
	return nil
}

func (c *Call) checkLoss() error {
	switch {
	case c.Loss == 0:
		return nil
	case c.Loss < 0 || c.Loss > MaxLoss:
		return fmt.Errorf("%s: a loss of %d thousandths: want 0 to %d", c.Operation, c.Loss, MaxLoss)
	case c.Operation != AllReduce || c.Ordered || c.Element != Float32 && c.Element != Float64 || c.Reduction != Sum && c.Reduction != Average:
		return fmt.Errorf("%s of %s: only sums of floating-point numbers may lose parts", c.Operation, c.Element)
	}
	return nil
}

func (c Call) String() string {
	s := c.Operation.String()
	if c.Reduction.valid() {
		s += " (" + c.Reduction.String() + ")"
	}
	if c.Operation != Barrier {
		s += fmt.Sprintf(" of %d %s", max(c.Count, c.Whole), c.Element)
	}
	if c.Operation == Broadcast {
		s += fmt.Sprintf(" from rank %d", c.Root)
	}
	if c.Site != "" {
		s += " at " + c.Site
	}
	return s
}

// A MismatchError says that two ranks made different calls at the same place in their order.
type MismatchError struct {
	Number       uint64 // of the call in the group, from 1
	RankA, RankB int
	A, B         Call
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("ranks disagree in call %d: rank %d calls %s, rank %d calls %s", e.Number, e.RankA, e.A, e.RankB, e.B)
}

// maxSite bounds the bytes of a call's site that are sent.
const maxSite = 256

// encode returns the call in the form that is sent to other ranks, with its algorithm: four bytes,
// the count and the root as 8 bytes each, the algorithm, the loss in two bytes, for a part of a call
// Whole and First as 8 bytes each, and the site.
func (c *Call) encode(a Algorithm) []byte {
	how := byte(0)
	if c.Ordered {
		how |= isOrdered
	}
	if c.Store {
		how |= isStored
	}
	if c.Whole != 0 {
		how |= isPart
	}
	b := []byte{byte(c.Operation), byte(c.Element), byte(c.Reduction), how}
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Count))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Root))
	b = append(b, byte(a))
	b = binary.LittleEndian.AppendUint16(b, uint16(c.Loss))
	if c.Whole != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(c.Whole))
		b = binary.LittleEndian.AppendUint64(b, uint64(c.First))
	}
	return append(b, c.Site[:min(len(c.Site), maxSite)]...)
}

// Bits of the fourth byte of a call.
const (
	isOrdered = 1 << iota
	isStored
	isPart
)

const (
	callSize = 4 + 8 + 8 + 1 + 2
	partSpan = 8 + 8 // Whole and First
)

// decodeCall decodes a call that encode has written.
func decodeCall(b []byte) (c Call, a Algorithm, err error) {
	if len(b) < callSize || len(b) > callSize+partSpan+maxSite || b[3] > isOrdered|isStored|isPart {
		return c, a, errors.New("a call that can't be read")
	}
	count, root := binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])
	if count > maxCount || root > maxRanks {
		return c, a, errors.New("a call with too many elements or ranks")
	}
	c = Call{
		Operation: Operation(b[0]), Element: Element(b[1]), Reduction: Reduction(b[2]), Ordered: b[3]&isOrdered != 0, Store: b[3]&isStored != 0,
		Count: int(count), Root: int(root), Loss: int(binary.LittleEndian.Uint16(b[21:])),
	}
	site := b[callSize:]
	if b[3]&isPart != 0 {
		if site, err = c.decodePart(site); err != nil {
			return c, a, err
		}
	}
	c.Site = string(site)
	return c, Algorithm(b[20]), nil
}

// decodePart decodes Whole and First and returns the bytes behind them.
func (c *Call) decodePart(b []byte) (rest []byte, err error) {
	if len(b) < partSpan {
		return nil, errors.New("a part of a call that can't be read")
	}
	whole, first := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if whole > maxCount || first > maxCount {
		return nil, errors.New("a part of a call with too many elements")
	}
	c.Whole, c.First = int(whole), int(first)
	return b[partSpan:], nil
}

// Same reports whether two calls are equal except for their sites.
func (c Call) Same(d Call) bool {
	c.Site, d.Site = "", ""
	return c == d
}

// Bytes returns the size of a rank's buffer.
func (c *Call) Bytes() int { return c.Count * c.Element.Size() }
