package dsl

import (
	"errors"
	"time"
)

const (
	// maxSteps bounds the evaluations between two events, in jq's own instructions, and
	// maxEvalSteps each of them.
	maxSteps     = 5_000_000
	maxEvalSteps = 1_000_000
	// maxBytes bounds the bytes that they process in single steps: in comparisons, searches and
	// sorts.
	maxBytes = 256 << 20
	// maxTime bounds their time on a machine that is slower than expected, or busy. It is a safety
	// net: a workflow that reaches it may behave differently in a replay, and is then faulted.
	maxTime = time.Minute
	// bytesPerPair is the charge of a search for each pair of a unit of its input and one of its
	// argument, in bytes.
	bytesPerPair = 64
	// callFactor bounds how often a search reads or copies its input and argument.
	callFactor = 16
	// heldPart is the part of an intermediate result's size that is charged each time it grows.
	heldPart = 8
)

// Budget bounds the work of evaluations. It counts steps and bytes, which are the same on every
// machine, so that a replay has the same outcome. The zero value is a full budget.
type Budget struct {
	steps, bytes int64
	end          time.Time
	// searches are the regular expressions of the evaluations, by pattern and flags.
	searches map[[2]string]*search
	// lengths are those of the arrays that assignments have made, by their paths.
	lengths map[string]int
}

var (
	errSteps = errors.New("the expression takes too many steps: leave such work to a function")
	errBytes = errors.New("the expression looks at too much data too often: leave such work to a function")
	errTime  = errors.New("the expression takes too long: leave such work to a function")
	errSpoil = errors.New("the expression uses a reserved name")
)

// step counts one of jq's instructions. It returns an error when the budget is used up.
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

// charged charges for reading values, and returns the result or an error.
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

// chargedRepetition charges for a product, which is much larger than its factors if one is a text.
func chargedRepetition(budget, result, x, y any) any {
	b, ok := budget.(*Budget)
	if !ok {
		return errSpoil
	}
	if err, refused := result.(error); refused {
		return err
	}
	if err := b.charge(int64(repetitionSize(x, y) + repetitionSize(y, x))); err != nil {
		return err
	}
	return charged(budget, result, x, y)
}

// chargedProduct charges for searching one value in another.
func chargedProduct(budget, result, in, subject any) any {
	b, ok := budget.(*Budget)
	if !ok {
		return errSpoil
	}
	x, y := sizeOf(in), sizeOf(subject)
	if err := b.charge(callFactor*(x+y) + x*y/bytesPerPair); err != nil {
		return err
	}
	return result
}

// checkHeld checks the size of an intermediate result, and charges for a part of it: the built-in
// functions that extend one step by step would otherwise be charged for the square of its size.
func checkHeld(budget, v any) any {
	b, ok := budget.(*Budget)
	if !ok {
		return errSpoil
	}
	left, err := measure(v, maxValueSize)
	if err == nil {
		err = b.charge(int64(maxValueSize-left) / heldPart)
	}
	if err != nil {
		return err
	}
	return v
}

// sizeOf returns a value's size according to measure, up to the maximum.
func sizeOf(v any) int64 {
	left, err := measure(v, maxValueSize)
	if err != nil {
		return maxValueSize
	}
	return int64(maxValueSize - left)
}
