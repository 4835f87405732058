package grammar

// formats returns the expressions of the supported formats, without the quotes. Each matches a part of
// what the format allows, on which validators agree.
func formats() map[string]node {
	two := digits
	d, hex, low := charset("[0-9]"), charset("[0-9a-f]"), charset("[a-z]")
	// The 29th is left out, since not every month has it, and so are years before 1000.
	date := sequence{charset("[1-9]"), repeated{d, 3, 3}, literal("-"), two("01", "12"), literal("-"), two("01", "28")}
	clock := sequence{two("00", "23"), literal(":"), two("00", "59"), literal(":"), two("00", "59"), literal("Z")}
	byteValue := naturals(0, 255)
	// RFC 1123: labels of letters and digits; a domain ends with letters.
	label := sequence{low, repeated{charset("[a-z0-9]"), 0, 30}, repeated{sequence{literal("-"), repeated{charset("[a-z0-9]"), 1, 15}}, 0, 1}}
	domain := sequence{label, repeated{sequence{literal("."), label}, 0, 2}, literal("."), repeated{low, 2, 10}}
	word := repeated{charset("[A-Za-z0-9_-]"), 1, 30}
	group := sequence{charset("[1-9a-f]"), repeated{hex, 0, 3}}
	return map[string]node{
		"date": date, "time": clock, "date-time": sequence{date, literal("T"), clock},
		// ISO 8601, in days or in one unit of the clock.
		"duration": sequence{literal("P"), choice{
			sequence{naturals(0, 9999), literal("D")},
			sequence{literal("T"), naturals(0, 9999), charset("[HMS]")},
		}},
		// Version 4 of RFC 9562: some validators refuse others.
		"uuid":     sequence{repeated{hex, 8, 8}, literal("-"), repeated{hex, 4, 4}, literal("-4"), repeated{hex, 3, 3}, literal("-"), charset("[89ab]"), repeated{hex, 3, 3}, literal("-"), repeated{hex, 12, 12}},
		"ipv4":     sequence{byteValue, literal("."), byteValue, literal("."), byteValue, literal("."), byteValue},
		"ipv6":     sequence{repeated{sequence{group, literal(":")}, 7, 7}, group},
		"hostname": domain,
		"email":    sequence{word, repeated{sequence{literal("."), word}, 0, 2}, literal("@"), domain},
		// A URL of the web.
		"uri": sequence{literal("http"), repeated{literal("s"), 0, 1}, literal("://"), domain, repeated{sequence{literal("/"), repeated{charset("[A-Za-z0-9._~-]"), 0, 60}}, 0, 8}},
	}
}

// lengths returns the lengths of the shortest and the longest text that the expression of a format
// matches, in characters.
func lengths(n node) (shortest, longest int) {
	switch n := n.(type) {
	case literal:
		return len(n), len(n)
	case charset:
		return 1, 1
	case sequence:
		for _, part := range n {
			low, high := lengths(part)
			shortest, longest = shortest+low, longest+high
		}
	case choice:
		shortest, longest = lengths(n[0])
		for _, part := range n[1:] {
			low, high := lengths(part)
			shortest, longest = min(shortest, low), max(longest, high)
		}
	case repeated:
		low, high := lengths(n.node)
		return low * n.min, high * n.max
	}
	return shortest, longest
}
