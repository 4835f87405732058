package dsl

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
)

var errValueSize = errors.New("the expression makes a value of more than 4 MiB: leave such work to a function")

var errNumber = errors.New("the expression makes a number of more than 4096 bits")

const maxBits = 4096

// maxDigits bounds the text of a number: reading one takes time that grows with the square of its
// length, in a single step, and more than these have more bits than maxBits.
const maxDigits = 1300

var errDigits = errors.New("a number has more than 1300 characters")

// CheckNumber returns an error for a number that is too long to compute with.
func CheckNumber(n json.Number) error {
	if len(n) > maxDigits {
		return errDigits
	}
	return nil
}

// checkDigits refuses a text that is too long for a number.
func checkDigits(v any) any {
	if text, ok := v.(string); ok && len(text) > maxDigits {
		return errDigits
	}
	return v
}

// measure subtracts a value's size from a limit, or returns an error. Shared parts count each
// time, as in the encoded value.
func measure(v any, limit int) (int, error) {
	return measureDeep(v, limit, maxDepth)
}

func measureDeep(v any, left, depth int) (int, error) {
	if left -= 16; left < 0 || depth < 0 {
		return left, errValueSize
	}
	var err error
	switch v := v.(type) {
	case string:
		left -= len(v)
	case json.Number:
		if err := CheckNumber(v); err != nil {
			return left, err
		}
		left -= len(v)
	case *big.Int:
		// Large numbers cost much time before they cost much memory.
		if left -= v.BitLen() / 3; v.BitLen() > maxBits {
			return left, errNumber
		}
	case []any:
		for _, e := range v {
			if left, err = measureDeep(e, left, depth-1); err != nil {
				return left, err
			}
		}
	case map[string]any:
		for k, e := range v {
			if left, err = measureDeep(e, left-len(k), depth-1); err != nil {
				return left, err
			}
		}
	}
	if left < 0 {
		return left, errValueSize
	}
	return left, nil
}

func checkSize(v any) any {
	if _, err := measure(v, maxValueSize); err != nil {
		return err
	}
	return v
}

// checkBoth checks the sizes of the operands of an addition.
func checkBoth(args []any) any {
	left, err := measure(args[0], maxValueSize)
	if err == nil {
		_, err = measure(args[1], left)
	}
	if err != nil {
		return err
	}
	return []any{args[0], args[1]}
}

// checkProduct checks the size of a product. A text is repeated by a number, and the
// product of numbers has as many digits as its factors.
func checkProduct(args []any) any {
	if repetitionSize(args[0], args[1]) > maxValueSize || repetitionSize(args[1], args[0]) > maxValueSize {
		return errValueSize
	}
	return checkBoth(args)
}

// repetitionSize returns the bytes of a text that is repeated, 0 for other values. An empty text counts
// as if it had a byte.
func repetitionSize(text, times any) float64 {
	s, isText := text.(string)
	n, isNumber := number(times)
	if !isText || !isNumber || !(n > 0) {
		return 0
	}
	return min(n, math.MaxInt32) * float64(max(len(s), 1))
}

// checkIndex checks what stands in brackets. An array there is searched for, in a value whose size is
// not known: the charge is that of a search in the largest one.
func checkIndex(budget, v any) any {
	if _, ok := v.([]any); ok {
		b, ok := budget.(*Budget)
		if !ok {
			return errSpoil
		}
		if err := b.charge(maxValueSize / bytesPerPair * sizeOf(v)); err != nil {
			return err
		}
	}
	if n, ok := number(v); ok && math.Abs(n) > maxIndex {
		return errIndex
	}
	return v
}

var errIndex = errors.New("an expression sees 65536 elements of an array at most")

// checkPath checks a path of a value. Setting it makes arrays that are as long as its indices: if
// these have a sum that no value has space for, neither has the result.
func checkPath(budget, v any) any {
	path, ok := v.([]any)
	if !ok {
		return v
	}
	sum := 0.0
	for _, e := range path {
		n, ok := number(e)
		if !ok || math.IsNaN(n) {
			continue
		}
		if n = math.Abs(n); n > maxIndex {
			return errIndex
		}
		if sum += n; sum > maxValueSize/16 {
			return errValueSize
		}
	}
	return charged(budget, v, v)
}

// grown charges for the arrays that an assignment to a path makes: for the elements that no earlier
// path has made. Values that are assigned to at many paths would otherwise be checked too late.
func grown(budget, v any) any {
	path, ok := v.([]any)
	if !ok {
		return v
	}
	if err, ok := checkPath(budget, v).(error); ok {
		return err
	}
	b, ok := budget.(*Budget)
	if !ok {
		return errSpoil
	}
	if len(path) > maxDepth {
		return errValueSize
	}
	if b.lengths == nil {
		b.lengths = map[string]int{}
	}
	var prefix []byte
	for _, e := range path {
		if n, ok := number(e); ok && n >= 0 {
			if err := b.lengthen(string(prefix), int(n)+1); err != nil {
				return err
			}
		}
		prefix = fmt.Appendf(prefix, "%q", fmt.Sprint(e))
	}
	return v
}

// lengthen charges for the elements of an array, "" for the outermost, beyond those that are charged
// for.
func (b *Budget) lengthen(array string, length int) error {
	have, known := b.lengths[array]
	if length <= have {
		return nil
	}
	cost := 16 * (length - have)
	if !known {
		cost += 256 + len(array)
	}
	b.lengths[array] = length
	return b.charge(int64(cost))
}

// checkTransposed checks the size of a transposed array, which has space for as many columns as the
// longest row has.
func checkTransposed(v any) any {
	rows, _ := v.([]any)
	longest := 0
	for _, row := range rows {
		if row, ok := row.([]any); ok {
			longest = max(longest, len(row))
		}
	}
	if float64(len(rows))*float64(longest) > maxValueSize/16 {
		return errValueSize
	}
	return checkSize(v)
}

// maxOrder bounds the order of a Bessel function, which is computed by as many steps.
const maxOrder = 1000

func checkOrder(v any) any {
	if n, ok := number(v); ok && !(math.Abs(n) <= maxOrder) {
		return errors.New("jn and yn take an order of 1000 at most")
	}
	return v
}

// unshared returns a copy of a value that shares no memory with others. A slice of an array, and a part
// of a text, keep all of it in memory, which Size does not count.
func unshared(v any) any {
	switch v := v.(type) {
	case string:
		return strings.Clone(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = unshared(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[strings.Clone(k)] = unshared(e)
		}
		return out
	}
	return v
}

// Size returns the size of a value in bytes, of which it counts the parts that are shared each time.
// It returns false if the size exceeds the limit.
func Size(v any, limit int) (int, bool) {
	left, err := measureDeep(v, limit, 2*maxDepth)
	return limit - left, err == nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil || math.IsInf(f, 0)
	}
	return 0, false
}
