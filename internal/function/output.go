package function

// output keeps the beginning of a guest's output.
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

// drain returns the output so far and clears it.
func (o *output) drain() Output {
	out := Output{Text: o.kept, Dropped: o.dropped}
	o.kept, o.dropped = nil, 0
	return out
}

// Output is the text that a guest wrote to one of its standard streams.
type Output struct {
	// Text is the beginning of the output.
	Text []byte
	// Dropped is the number of bytes after Text.
	Dropped int64
}
