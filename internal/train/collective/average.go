package collective

// Divide divides the elements by n, as Average does with the sum of n ranks.
func Divide(b []byte, e Element, n int) { divide(b, e, n) }

// Part returns the i-th of n parts of count elements: sizes differ by at most one.
func Part(i, n, count int) Span { return part(i, n, count) }

// ToFloat16 returns the nearest binary16 number, ties to even; beyond 65504 it is infinite.
func ToFloat16(f float32) uint16 { return toFloat16(f) }

// FromFloat16 returns the value of a binary16 number.
func FromFloat16(h uint16) float32 { return fromFloat16(h) }
