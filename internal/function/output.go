package function

// output keeps the beginning of what a guest writes.
type output struct {
	kept    []byte
	limit   int
	dropped int64
}

// Write never fails: a guest must not depend on the readers of its log.
func (o *output) Write(p []byte) (int, error) {
	n := max(min(o.limit-len(o.kept), len(p)), 0)
	o.kept = append(o.kept, p[:n]...)
	o.dropped += int64(len(p) - n)
	return len(p), nil
}

// drain returns and clears what was written.
func (o *output) drain() Output {
	out := Output{Text: o.kept, Dropped: o.dropped}
	o.kept, o.dropped = nil, 0
	return out
}

// Output is what a guest wrote to one of its standard streams.
type Output struct {
	// Text is the beginning.
	Text []byte
	// Dropped is how many bytes came after it.
	Dropped int64
}
