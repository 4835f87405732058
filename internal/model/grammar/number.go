package grammar

import "strconv"

// maxInteger bounds generated integers: all within it are exact as 64-bit floats.
const maxInteger = 999_999_999_999_999

// integers returns an expression for the integers from low to high, both within ±maxInteger.
func integers(low, high int64) node {
	var c choice
	if low < 0 {
		c = append(c, sequence{literal("-"), naturals(max(1, -high), -low)})
	}
	if high >= 0 {
		c = append(c, naturals(max(0, low), high))
	}
	return c
}

// naturals returns an expression for the decimal numbers from low to high, low >= 0.
func naturals(low, high int64) node {
	var c choice
	for low <= high {
		text := strconv.FormatInt(low, 10)
		last := int64(1)
		for range text {
			last *= 10
		}
		last = min(last-1, high)
		c = append(c, digits(text, strconv.FormatInt(last, 10)))
		low = last + 1
	}
	return c
}

// digits returns an expression for the numbers from low to high, which have equally many digits.
func digits(low, high string) node {
	switch {
	case low == "":
		return sequence{}
	case allOf(low, '0') && allOf(high, '9'):
		return repeated{charset("[0-9]"), len(low), len(low)}
	case low[0] == high[0]:
		return sequence{literal(low[:1]), digits(low[1:], high[1:])}
	}
	rest := len(low) - 1
	c := choice{sequence{literal(low[:1]), digits(low[1:], repeat('9', rest))}}
	if low[0]+1 < high[0] {
		middle := charset("[" + string(low[0]+1) + "-" + string(high[0]-1) + "]")
		c = append(c, sequence{middle, digits(repeat('0', rest), repeat('9', rest))})
	}
	return append(c, sequence{literal(high[:1]), digits(repeat('0', rest), high[1:])})
}

func allOf(s string, c byte) bool { return s == repeat(c, len(s)) }

func repeat(c byte, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = c
	}
	return string(b)
}
