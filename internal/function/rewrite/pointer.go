package rewrite

// A cached is a pointer that was made 32 bits.
type cached struct {
	narrow  uint32 // the variable that holds it, if used again
	has     bool
	line    int // that made it 32 bits
	depth   int // of the blocks around that line
	named   int // the last run without branches where it was set to itself
	group   int // the last run without branches where it was used
	first   int // the line in front of which all of the run may be tried
	ceiling int64
	highest int64
}

// narrow writes a pointer as 32 bits, or uses what was made so before. Its offset is
// left out.
func (a *addresser) narrow(t *term) {
	k := a.known[t.local]
	if k == nil || t.set {
		a.remove(t.from+1, t.to)
		k = &cached{line: t.to, depth: a.depth, named: a.group}
		a.known[t.local], t.narrow = k, k
		return
	}
	if !k.has {
		k.has, k.narrow = true, a.spare
		a.spare++
		a.lines[k.line].code = appendU32([]byte{opI32Wrap, opTee}, k.narrow)
	}
	a.remove(t.from, t.to)
	code := appendU32([]byte{opGet}, k.narrow)
	if k.named != a.group {
		k.named = a.group
		code = appendU32(append(code, opTee), k.narrow)
	}
	a.put(t.to, code...)
	t.narrow = k
}

// useStack notes an access to the stack.
func (a *addresser) useStack(at int, ceiling int64) {
	if !a.inFrame {
		return
	}
	if a.stacked != a.group {
		a.stacked, a.tries = a.group, append(a.tries, at)
	} else if last := len(a.tries) - 1; at < a.tries[last] {
		a.tries[last] = at
	}
	a.frame = max(a.frame, ceiling)
}

// use notes an access by way of a pointer.
func (a *addresser) use(k *cached, at int, ceiling int64) {
	if k.first == 0 || k.group != a.group {
		a.try(k)
		k.group, k.first, k.ceiling, k.highest = a.group, at, ceiling, ceiling
	}
	k.first, k.highest = min(k.first, at), max(k.highest, ceiling)
}

// try puts an access that is not used in front of a run of them, if a later one goes
// farther than the first.
func (a *addresser) try(k *cached) {
	if k.first == 0 || !k.has || k.highest <= k.ceiling {
		return
	}
	l := &a.lines[k.first]
	farthest := attempt(k.narrow, k.highest)
	if k.first == k.line { // it is being made here
		l.code = appendU32(append(append(l.code, farthest...), opGet), k.narrow)
		l.code[1] = opSet
	} else {
		l.before = append(l.before, farthest...)
	}
	k.ceiling = k.highest
}

// attempt is code that reads the last byte before a ceiling. It sets the variable to
// itself: where ways meet the engine knows it by two names until it is set.
func attempt(local uint32, ceiling int64) []byte {
	code := appendU32([]byte{opGet}, local)
	code = appendU32(append(code, opTee), local)
	code = appendU32(append(code, opI32Load8U, 0), uint32(ceiling-1))
	return append(code, opDrop)
}
