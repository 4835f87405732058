// Command unwind makes Go enter functions in their middle: by goroutines that wait, and by panics
// that are recovered, all in functions with loops.
package main

import (
	"errors"
	"os"
	"runtime"
	"sort"
	"strconv"
	"time"
)

func main() {
	for _, f := range []func() int{exchange, recoveries, deferred, selects, stacks, collect, sleepers, deep} {
		_, _ = os.Stdout.WriteString(strconv.Itoa(f()) + "\n")
	}
}

// exchange waits in two loops by turns.
func exchange() (sum int) {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for n := range ping {
			if n%3 == 0 {
				runtime.Gosched()
			}
			pong <- n * 2
		}
		close(pong)
	}()
	for i := range 100 {
		ping <- i
		for j := range <-pong {
			if j%7 == 3 {
				continue
			}
			sum += j
		}
	}
	close(ping)
	return sum
}

var errOdd = errors.New("odd")

func half(n int) (h int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errOdd
			for i := range n {
				h -= i
			}
		}
	}()
	for i := 0; i <= n; i += 2 {
		if i == n {
			return n / 2, nil
		}
		if i == n-1 {
			panic("odd")
		}
	}
	return 0, nil
}

func recoveries() (sum int) {
	for i := range 50 {
		h, err := half(i)
		if err != nil {
			sum += 1000
		}
		sum += h
	}
	return sum
}

// deferred recovers in a function whose defers are made in a loop.
func deferred() (sum int) {
	for i := range 20 {
		func() {
			for j := range i {
				defer func() {
					sum += j
					if j == 3 && recover() != nil {
						sum += 10000
					}
				}()
			}
			if i%4 == 1 && i > 4 {
				var none []int
				sum += none[i]
			}
		}()
	}
	return sum
}

func selects() (sum int) {
	a, b, done := make(chan int), make(chan int, 3), make(chan struct{})
	go func() {
		defer close(done)
		for i := range 30 {
			select {
			case a <- i:
			case b <- i * 100:
			}
		}
	}()
	for seen := 0; seen < 30; {
		select {
		case n := <-a:
			sum, seen = sum+n, seen+1
		case n := <-b:
			sum, seen = sum+n/100, seen+1
		}
	}
	<-done
	return sum
}

// stacks grows the stack within loops.
func stacks() (sum int) {
	for i := range 10 {
		done := make(chan int)
		go func() { done <- recurse(i * 200) }()
		sum += <-done
	}
	return sum
}

func recurse(n int) int {
	var room [16]int
	for i := range room {
		room[i] = n + i
	}
	if n == 0 {
		return room[15]
	}
	return recurse(n-1) + room[n%16]%5
}

type tree struct {
	left, right *tree
	n           int
}

func grow(depth int) *tree {
	if depth == 0 {
		return &tree{n: 1}
	}
	return &tree{grow(depth - 1), grow(depth - 1), depth}
}

func (t *tree) sum() int {
	if t == nil {
		return 0
	}
	return t.left.sum() + t.right.sum() + t.n
}

// collect runs the garbage collector.
func collect() (sum int) {
	words := map[string]*tree{}
	for i := range 40 {
		words["tree"+strconv.Itoa(i%5)] = grow(8)
		if i%10 == 0 {
			runtime.GC()
		}
	}
	var names []string
	for name := range words {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		sum += (i + 1) * words[name].sum()
	}
	return sum
}

func sleepers() int {
	done := make(chan int)
	for i := range 10 {
		go func() {
			for range i {
				time.Sleep(time.Microsecond)
			}
			done <- i
		}()
	}
	sum := 0
	for range 10 {
		sum += <-done
	}
	return sum
}

// deep panics through frames with loops and recovers far above.
func deep() (n int) {
	defer func() {
		if r := recover(); r != nil {
			n, _ = r.(int)
		}
	}()
	for i := range 10 {
		n += fall(i * 3)
	}
	return n
}

func fall(n int) int {
	for i := range n {
		if i == 20 {
			panic(n * i)
		}
		n += fall(i/2) % 2
	}
	return n
}
