package policy

import "sync/atomic"

// A budget bounds what is sent beyond the calls themselves: each call puts a
// fraction in, each extra attempt takes one out, and no more than a reserve is kept.
type budget struct{ spent atomic.Int64 } // below the reserve, in thousandths

const whole = 1000

// earn puts a call's fraction in.
func (b *budget) earn(ratio int64) {
	for {
		spent := b.spent.Load()
		if spent == 0 || b.spent.CompareAndSwap(spent, max(0, spent-ratio)) {
			return
		}
	}
}

// take takes an attempt out, if there is one.
func (b *budget) take(reserve int64) bool {
	for {
		spent := b.spent.Load()
		if spent+whole > reserve {
			return false
		}
		if b.spent.CompareAndSwap(spent, spent+whole) {
			return true
		}
	}
}

// budgetRules are how much may be sent beyond the calls.
type budgetRules struct{ ratio, reserve int64 } // in thousandths
