package grammar

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// Limits of multipleOf.
const (
	// maxListed bounds the multiples between two limits, which are listed.
	maxListed = 1000
	// maxModulus bounds a divisor without its factors of ten where the multiples have no limits.
	maxModulus = 100
	// maxMultipleDigits bounds the digits of such a multiple, so that it is exact as a 64-bit float.
	maxMultipleDigits = 15
)

// compileMultiples compiles a number that is a multiple. Divisors are integers, and for numbers also
// 0.1, 0.01 and so on.
func compileMultiples(c *compiler, t string, o *object, path string) (node, error) {
	at := step(path, "multipleOf")
	text, _ := o.values["multipleOf"].(json.Number)
	divisor, ok := new(big.Rat).SetString(text.String())
	if !ok || divisor.Sign() <= 0 {
		return nil, refuse(at, "it must be a number above 0")
	}
	if t == "number" && divisor.Num().IsInt64() && divisor.Num().Int64() == 1 && !divisor.IsInt() {
		return compileDecimals(o, path, divisor)
	}
	if !divisor.IsInt() || divisor.Num().Cmp(big.NewInt(maxInteger)) > 0 {
		return nil, refuse(at, "%s is not supported: integers up to %d are, and 0.1, 0.01 and so on for numbers without limits; leave it out and say in the description which values are wanted", text, maxInteger)
	}
	low, high, err := integerLimits(o, path)
	if err != nil {
		return nil, err
	}
	n := divisor.Num().Int64()
	first, last := -floorDiv(-low, n), floorDiv(high, n)
	switch {
	case first > last:
		return nil, refuse(at, "%w: no multiple of %d lies within the limits", errUnsatisfiable, n)
	case last-first < maxListed:
		return listMultiples(c, n, first, last, path)
	case first > 0 && low > 1 || last < 0 || high != maxInteger || low < 0 && low != -maxInteger:
		return nil, refuse(at, "more than %d multiples of %d lie within the limits: narrow them, or leave out all but a minimum of 0", maxListed, n)
	}
	return unboundedMultiples(c, n, low, path)
}

// floorDiv returns the quotient of a by b > 0, rounded down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// listMultiples returns an expression for the multiples of n from first to last times n.
func listMultiples(c *compiler, n, first, last int64, path string) (node, error) {
	if err := c.charge(int(last-first+1)*itemCost, path); err != nil {
		return nil, err
	}
	var list choice
	for i := first; i <= last; i++ {
		list = append(list, literal(strconv.FormatInt(i*n, 10)))
	}
	return list, nil
}

// compileDecimals compiles a number with as many decimals as a divisor has, a power of ten below 1.
func compileDecimals(o *object, path string, divisor *big.Rat) (node, error) {
	places := len(divisor.Denom().String()) - 1
	if strings.TrimRight(divisor.Denom().String(), "0") != "1" || places > maxMultipleDigits {
		return nil, refuse(step(path, "multipleOf"), "%s is not supported: integers are, and 0.1, 0.01 and so on", divisor.RatString())
	}
	if limited(o) {
		low, high, err := integerLimits(o, path)
		if err != nil {
			return nil, err
		}
		return numberWithin(low, high, path, places)
	}
	return sequence{ref("integer"), repeated{sequence{literal("."), repeated{charset("[0-9]"), 1, places}}, 0, 1}}, nil
}

// unboundedMultiples returns an expression for the multiples of n, without negative ones if low is not
// negative, and without 0 if it is positive.
func unboundedMultiples(c *compiler, n, low int64, path string) (node, error) {
	zeros := 0
	for ; n%10 == 0; n /= 10 {
		zeros++
	}
	if n > maxModulus || zeros > maxMultipleDigits/2 {
		return nil, refuse(step(path, "multipleOf"), "beyond %d it is supported between limits with at most %d multiples: add a minimum and a maximum", maxModulus, maxListed)
	}
	if err := c.charge(int(n)*maxMultipleDigits*expressionCost/16, path); err != nil {
		return nil, err
	}
	positive := node(sequence{remainders(c, int(n), maxMultipleDigits-zeros, path), literal(strings.Repeat("0", zeros))})
	if low < 0 {
		positive = sequence{repeated{literal("-"), 0, 1}, positive}
	}
	if low > 0 {
		return positive, nil
	}
	return choice{literal("0"), positive}, nil
}

// remainders returns an expression for the positive multiples of n with at most so many digits. Its
// rules are the states of an automaton: the remainder of the digits so far, and how many may follow.
func remainders(c *compiler, n, digits int, path string) node {
	rest := make([]node, n) // from each remainder to a multiple of n, with at most so many digits
	for i := range rest {
		rest[i] = choice(nil)
	}
	rest[0] = sequence{}
	for range digits - 1 {
		next := make([]node, n)
		for r := range next {
			options := digitsTo(n, r, 0, rest)
			if r == 0 {
				options = append(options, sequence{})
			}
			next[r] = options
			if len(options) > 0 {
				next[r] = c.define(options, path)
			}
		}
		rest = next
	}
	return digitsTo(n, 0, 1, rest)
}

// digitsTo returns an expression for a digit of at least first, and what may follow it after the
// remainder r.
func digitsTo(n, r, first int, rest []node) choice {
	var options choice
	for digit := first; digit < 10; digit++ {
		after := rest[(10*r+digit)%n]
		if none, ok := after.(choice); !ok || len(none) > 0 {
			options = append(options, sequence{literal(strconv.Itoa(digit)), after})
		}
	}
	return options
}
