package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// narrowedPointer is a pointer that was made 32 bits wide.
type narrowedPointer struct {
	local       uint32 // that holds it, if it is used again
	allocated   bool   // there is such a local
	definedAt   int    // the instruction that narrowed it
	depth       int    // of the blocks around that instruction
	renamedIn   int    // the last basic block with a self-assignment of the local
	accessedIn  int    // the last basic block with an access by it
	firstAccess int    // the instruction in front of which all accesses of the block can be checked
	checked     int64  // how far the engine's bounds check of the first access reaches
	extent      int64  // how far the accesses of the block reach
}

// narrowPointer writes a pointer as 32 bits, or reads the local that holds it. Its offset is left
// to the accesses.
func (a *addressFolder) narrowPointer(v *stackValue) {
	k := a.narrowed[v.local]
	if k == nil || v.defined {
		if len(a.narrowed) >= maxNarrowed {
			a.invalidateFrom(0)
		}
		a.code.delete(v.first+1, v.last)
		k = &narrowedPointer{definedAt: v.last, depth: a.depth, renamedIn: a.block}
		a.narrowed[v.local], v.narrowed = k, k
		return
	}
	if !k.allocated {
		k.allocated, k.local = true, a.nextLocal
		a.nextLocal++
		a.code.instructions[k.definedAt].code = wasmbin.AppendU32([]byte{opI32WrapI64, opLocalTee}, k.local)
	}
	a.code.delete(v.first, v.last)
	code := wasmbin.AppendU32([]byte{opLocalGet}, k.local)
	if k.renamedIn != a.block {
		k.renamedIn = a.block
		code = wasmbin.AppendU32(append(code, opLocalTee), k.local)
	}
	a.code.replace(v.last, code...)
	v.narrowed = k
}

// noteAccess records an access by way of a narrowed pointer.
func (a *addressFolder) noteAccess(k *narrowedPointer, at int, extent int64) {
	if k.firstAccess == 0 || k.accessedIn != a.block {
		a.hoistCheck(k)
		k.accessedIn, k.firstAccess, k.checked, k.extent = a.block, at, extent, extent
	}
	k.firstAccess, k.extent = min(k.firstAccess, at), max(k.extent, extent)
}

// hoistCheck puts a bounds probe in front of the accesses of a basic block if a later one reaches
// farther than the first: then one check dominates all of them.
func (a *addressFolder) hoistCheck(k *narrowedPointer) {
	if k.firstAccess == 0 || !k.allocated || k.extent <= k.checked {
		return
	}
	l := &a.code.instructions[k.firstAccess]
	probe := boundsProbe(k.local, k.extent)
	if k.firstAccess == k.definedAt { // the local is being defined here
		l.code = wasmbin.AppendU32(append(append(l.code, probe...), opLocalGet), k.local)
		l.code[1] = opLocalSet
	} else {
		l.before = append(l.before, probe...)
	}
	k.checked = k.extent
}

// boundsProbe returns code that reads the last byte before an extent and drops it. The local is
// assigned to itself first: at a join of control flow the compiler's SSA form gives it a phi, under
// which bounds checks of the predecessors are not found, and the assignment gives it one name
// again.
func boundsProbe(local uint32, extent int64) []byte {
	code := wasmbin.AppendU32([]byte{opLocalGet}, local)
	code = wasmbin.AppendU32(append(code, opLocalTee), local)
	code = wasmbin.AppendU32(append(code, opI32Load8U, 0), uint32(extent-1))
	return append(code, opDrop)
}
