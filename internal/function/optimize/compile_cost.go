package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// DefaultMaxCompileCost bounds the CompileCost of a module: less than twenty seconds of one
// processor. Go's modules cost about one unit a byte.
const DefaultMaxCompileCost = 25_000_000

// compileCost estimates the time that the engine's compiler takes for one function, in units of
// about a microsecond (it overestimates most code). Its passes over the control-flow graph are
// quadratic in the number of basic blocks, and a loop header may need a phi for each local. The
// weights were fitted to wazero v1.12.0 (internal/engine/wazevo) with functions that consist of one
// construct each.
type compileCost struct {
	bytes  int64
	loads  int64
	blocks int64 // basic blocks, four quarters each
	loops  int64
	locals int64
}

// The weights, in units. Counts of blocks are in quarters.
const (
	unitsPerFunction = 8
	bytesPerUnit     = 2
	unitsPerAccess   = 10
	quarterBlock     = 1
	wholeBlock       = 4 * quarterBlock
	ifBlocks         = 3 * wholeBlock
	checkBlocks      = 4 * wholeBlock // a meter check at a loop header
	pairsPerUnit     = 16 * 250       // of quarters: 250 pairs of blocks
	unitsPerPhi      = 3
	phiPairsPerUnit  = 1_500_000
	// localsPerUnit is the weight of locals outside of loops. It is chosen for the memory of the
	// compiler, about eight bytes for each until it has compiled the module; they take little time.
	localsPerUnit = 2
)

// add counts an instruction.
func (c *compileCost) add(i wasmbin.Instruction) {
	switch i.Immediate {
	case wasmbin.LoopImmediate:
		c.loops++
		c.blocks += wholeBlock + checkBlocks
	case wasmbin.BlockImmediate, wasmbin.TryTableImmediate:
		c.blocks += wholeBlock
		if i.Op == opIf {
			c.blocks += ifBlocks - wholeBlock
		}
	case wasmbin.LabelImmediate:
		c.blocks += wholeBlock
	case wasmbin.LabelsImmediate:
		c.blocks += quarterBlock * int64(i.End-i.At)
	case wasmbin.MemArgImmediate, wasmbin.MemArgLaneImmediate:
		c.loads++
	default:
	}
	c.bytes += int64(i.End - i.At)
}

// units returns the estimate.
func (c *compileCost) units() int64 {
	phis := c.loops * c.locals
	return unitsPerFunction + c.bytes/bytesPerUnit + c.locals/localsPerUnit + c.loads*unitsPerAccess + square(c.blocks)/pairsPerUnit + phis*unitsPerPhi + square(phis)/phiPairsPerUnit
}

// square saturates below 2^61.
func square(n int64) int64 {
	n = min(n, 1<<30)
	return n * n
}
