package collective

// Divide divides the elements by n, as Average does with the sum of n ranks.
func Divide(b []byte, e Element, n int) { divide(b, e, n) }

// Part returns the i-th of n parts of count elements: sizes differ by at most one.
func Part(i, n, count int) Span { return part(i, n, count) }
