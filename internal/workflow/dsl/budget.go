package dsl

import (
	"errors"
	"time"
)

const (
	// maxSteps bounds what the evaluations between two events execute, in jq's own instructions, and
	// maxEvalSteps what one of them does.
	maxSteps     = 5_000_000
	maxEvalSteps = 1_000_000
	// maxBytes bounds the bytes that they look at in single steps: in comparisons, searches and sorts.
	maxBytes = 256 << 20
	// maxTime bounds them on a machine that is slower than expected. It is a safety net: a workflow that
	// comes to it may end differently when its log is replayed, and is then faulted.
	maxTime = 10 * time.Second
	// bytesPerPair is what a search is charged for each pair of a unit of its input and one of its
	// argument.
	bytesPerPair = 64
	// callFactor is how often a search looks at its input and argument, or copies them, at most.
	callFactor = 16
	// bytesPerCut is how many bytes lie between two places where a text is cut.
	bytesPerCut = 1024
)

// Budget bounds the work of evaluations. It counts steps and bytes, which are the same on every machine,
// so that a workflow that is replayed comes to the same end. The zero value is a full one.
type Budget struct {
	steps, bytes int64
	end          time.Time
}

var (
	errSteps = errors.New("the expression takes too many steps: leave such work to a function")
	errBytes = errors.New("the expression looks at too much data too often: leave such work to a function")
	errTime  = errors.New("the expression takes too long: leave such work to a function")
	errSpoil = errors.New("the expression uses a reserved name")
)

// step counts one of jq's instructions, and reports why there may be no more.
func (b *Budget) step() error {
	if b.steps++; b.steps > maxSteps {
		return errSteps
	}
	if b.steps%1024 != 1 {
		return nil
	}
	now := time.Now()
	if b.end.IsZero() {
		b.end = now.Add(maxTime)
	}
	if now.After(b.end) {
		return errTime
	}
	return nil
}

func (b *Budget) charge(bytes int64) error {
	if b.bytes += bytes; b.bytes > maxBytes {
		return errBytes
	}
	return nil
}

// charged charges for looking at values, and returns the result or an error.
func charged(budget, result any, values ...any) any {
	b, ok := budget.(*Budget)
	if !ok {
		return errSpoil
	}
	for _, v := range values {
		if err := b.charge(sizeOf(v)); err != nil {
			return err
		}
	}
	return result
}

// chargedProduct charges for looking for one value in another.
func chargedProduct(budget, result, in, what any) any {
	b, ok := budget.(*Budget)
	if !ok {
		return errSpoil
	}
	x, y := sizeOf(in), sizeOf(what)
	if err := b.charge(callFactor*(x+y) + x*y/bytesPerPair); err != nil {
		return err
	}
	return result
}

// chargedSquare charges for cutting a value up, which copies what is left each time.
func chargedSquare(budget, result, v any) any {
	b, ok := budget.(*Budget)
	if !ok {
		return errSpoil
	}
	x := sizeOf(v)
	if err := b.charge(x * x / bytesPerCut); err != nil {
		return err
	}
	return result
}

// sizeOf is a value's size, as measure has it, up to the largest that there may be.
func sizeOf(v any) int64 {
	left, err := measure(v, maxValueSize)
	if err != nil {
		return maxValueSize
	}
	return int64(maxValueSize - left)
}
