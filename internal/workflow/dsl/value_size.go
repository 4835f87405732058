package dsl

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
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
	for i, v := range args {
		text, ok := v.(string)
		if !ok {
			continue
		}
		if times, ok := number(args[1-i]); ok && times*float64(max(len(text), 1)) > maxValueSize {
			return errValueSize
		}
	}
	return checkBoth(args)
}

func checkIndex(v any) any {
	if n, ok := number(v); ok && math.Abs(n) > maxIndex {
		return errors.New("an expression sees 65536 elements of an array at most")
	}
	return v
}

func checkPath(v any) any {
	path, ok := v.([]any)
	if !ok {
		return v
	}
	for _, e := range path {
		if err, ok := checkIndex(e).(error); ok {
			return err
		}
	}
	return v
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
