package profile

import "fmt"

// maxRows bounds each list in the description of a program's memory.
const maxRows = 10_000

// Memory is the memory of the program, in bytes.
type Memory struct {
	// Peak is the largest resident size of the process.
	Peak       float64 `json:"peak"`
	Parameters float64 `json:"parameters"`
	// Tensors are those of the last pass whose memory was watched; nil: none was.
	Tensors *Tensors `json:"tensors,omitempty"`
	// Allocators are the states of the process's allocators at the end of that pass.
	Allocators []Allocator `json:"allocators,omitempty"`
	Watched    *Watched    `json:"watched,omitempty"`
}

// Tensors are the storages of tensors that operators have allocated, in bytes. Storages that
// operators allocate and free inside are not among them.
type Tensors struct {
	// Peak is the most bytes at once in the pass, Live those at its end.
	Peak float64 `json:"peak"`
	Live float64 `json:"live"`
	// Allocations is the number of allocations in the pass, Allocated the sum of their bytes.
	Allocations int     `json:"allocations"`
	Allocated   float64 `json:"allocated"`
	// Sites are the lines of the program that allocate, those with the most bytes at the peak first.
	Sites []Site `json:"sites"`
	// Lives are the parts of the pass between which tensors live.
	Lives []Life `json:"lives"`
	// Unwatched counts the storages beyond the most that are watched at once.
	Unwatched int `json:"unwatched"`
}

// A Storages counts storages in a pass.
type Storages struct {
	Tensors int     `json:"tensors"`
	Bytes   float64 `json:"bytes"`
	Largest float64 `json:"largest"`
	// Seconds is the mean life time of those that were freed in the pass; nil: none was.
	Seconds *float64 `json:"seconds"`
}

// A Site is a line of the program with an operator, and what they allocate in a pass.
type Site struct {
	// Site is FILE:LINE, "" for what was allocated before the watch began.
	Site     string `json:"site"`
	Operator string `json:"operator"`
	// Module is the type of the module in whose forward pass the operator runs; "" for none.
	Module string `json:"module"`
	Storages
	// Peak is the site's part of the bytes at the peak, also of what it has allocated in earlier
	// passes, and Live its part at the end of the pass.
	Peak float64 `json:"peak"`
	Live float64 `json:"live"`
}

// A Life counts the storages that were allocated in one part of a pass and freed in another one:
// forward, backward, optimizer or rest. Allocated may be earlier, before the pass, and Freed later.
type Life struct {
	Allocated string `json:"allocated"`
	Freed     string `json:"freed"`
	Storages
}

// An Allocator is the state of an allocator of the process, in bytes.
type Allocator struct {
	// Name is malloc for the C library's, or cuda:N for PyTorch's on a GPU.
	Name string  `json:"name"`
	Used float64 `json:"used"`
	// Free is what the allocator holds and nothing uses; Top is the part of it that the allocator
	// can return as a whole.
	Free float64 `json:"free"`
	Top  float64 `json:"top"`
	// Mapped is what large requests use beside that, in maps of their own.
	Mapped float64 `json:"mapped"`
}

// Fragmented returns the free bytes that lie between bytes in use.
func (a Allocator) Fragmented() float64 { return max(0, a.Free-a.Top) }

// Fragmentation returns the part of the allocator's bytes that is fragmented, 0 to 1.
func (a Allocator) Fragmentation() float64 {
	if held := a.Used + a.Free; held > 0 {
		return a.Fragmented() / held
	}
	return 0
}

// Watched says what watching the memory has cost.
type Watched struct {
	// Passes is the number of watched passes, which do not count for times.
	Passes int `json:"passes"`
	// Seconds is the time of the last one.
	Seconds float64 `json:"seconds"`
	// Slower is Seconds divided by the time of other passes; nil: all passes were watched.
	Slower *float64 `json:"slower"`
}

// check refuses lists that are longer than a profile has.
func (m *Memory) check() error {
	if n := len(m.Allocators); n > maxRows {
		return fmt.Errorf("memory: %d allocators, at most %d", n, maxRows)
	}
	if t := m.Tensors; t != nil && (len(t.Sites) > maxRows || len(t.Lives) > maxRows) {
		return fmt.Errorf("memory: %d call sites and %d life times, at most %d", len(t.Sites), len(t.Lives), maxRows)
	}
	return nil
}
