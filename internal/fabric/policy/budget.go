package policy

import "sync/atomic"

// budget bounds extra attempts: each call deposits a fraction of an attempt, and each extra
// attempt withdraws a whole one.
type budget struct{ spent atomic.Int64 } // attempts withdrawn from the reserve, in thousandths

const whole = 1000

// deposit adds a call's fraction of an attempt.
func (b *budget) deposit(ratio int64) {
	for {
		spent := b.spent.Load()
		if spent == 0 || b.spent.CompareAndSwap(spent, max(0, spent-ratio)) {
			return
		}
	}
}

// withdraw removes one attempt and reports whether there was one.
func (b *budget) withdraw(reserve int64) bool {
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

// budgetRules are the limits of a budget.
type budgetRules struct{ ratio, reserve int64 } // in thousandths
