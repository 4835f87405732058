package cli

import (
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/profile"
)

// maxSiteRows is the number of call sites that are printed; the profile has more.
const maxSiteRows = 12

// printMemory prints where the memory of a pass goes.
func printMemory(env *Env, m *profile.Memory) error {
	printSafe(env.Stderr, "\npeak memory of the process %v, parameters %v\n", outboard.Bytes(m.Peak), outboard.Bytes(m.Parameters))
	if t := m.Tensors; t != nil {
		printSafe(env.Stderr, "tensors of a pass: %v at the peak, %v at its end; %d allocations of %v\n",
			outboard.Bytes(t.Peak), outboard.Bytes(t.Live), t.Allocations, outboard.Bytes(t.Allocated))
		if err := printTensors(env, t); err != nil {
			return err
		}
	}
	if len(m.Allocators) > 0 {
		printSafe(env.Stderr, "\n")
		if err := writeTable(env.Stderr, "", []string{"ALLOCATOR", "USED", "FREE", "FRAGMENTED", "OF ALL", "MAPPED"}, allocatorRows(m.Allocators)); err != nil {
			return err
		}
	}
	printWatched(env, m.Watched)
	return nil
}

func printTensors(env *Env, t *profile.Tensors) error {
	var rows [][]string
	for _, l := range t.Lives {
		rows = append(rows, append([]string{l.Allocated, l.Freed}, storageCells(l.Storages)...))
	}
	if err := writeTable(env.Stderr, "", []string{"ALLOCATED", "FREED", "TENSORS", "BYTES", "LARGEST", "LIFE"}, rows); err != nil {
		return err
	}
	printSafe(env.Stderr, "\n")
	titles := []string{"CALL SITE", "OPERATOR", "MODULE", "TENSORS", "BYTES", "LARGEST", "LIFE", "AT THE PEAK"}
	if err := writeTable(env.Stderr, "", titles, siteRows(t.Sites)); err != nil {
		return err
	}
	if more := len(t.Sites) - maxSiteRows; more > 0 {
		printSafe(env.Stderr, "%d more in the profile\n", more)
	}
	if t.Unwatched > 0 {
		printSafe(env.Stderr, "%d tensors were not watched: there were too many at once\n", t.Unwatched)
	}
	return nil
}

func siteRows(sites []profile.Site) (rows [][]string) {
	for _, s := range sites[:min(len(sites), maxSiteRows)] {
		row := append([]string{orDash(s.Site), s.Operator, orDash(s.Module)}, storageCells(s.Storages)...)
		rows = append(rows, append(row, outboard.Bytes(s.Peak).String()))
	}
	return rows
}

func allocatorRows(list []profile.Allocator) (rows [][]string) {
	for _, a := range list {
		rows = append(rows, []string{
			a.Name, outboard.Bytes(a.Used).String(), outboard.Bytes(a.Free).String(), outboard.Bytes(a.Fragmented()).String(),
			strconv.FormatFloat(100*a.Fragmentation(), 'f', 1, 64) + " %", outboard.Bytes(a.Mapped).String(),
		})
	}
	return rows
}

func storageCells(s profile.Storages) []string {
	life := "-"
	if s.Seconds != nil {
		life = time.Duration(*s.Seconds * float64(time.Second)).Round(time.Microsecond).String()
	}
	return []string{strconv.Itoa(s.Tensors), outboard.Bytes(s.Bytes).String(), outboard.Bytes(s.Largest).String(), life}
}

func printWatched(env *Env, w *profile.Watched) {
	switch {
	case w == nil:
	case w.Slower == nil:
		printSafe(env.Stderr, "all %d passes were watched for memory, which makes them slower: the times above are too long\n", w.Passes)
	default:
		printSafe(env.Stderr, "%d passes were watched for memory, the last one %.1f times as slow as those whose times count\n", w.Passes, *w.Slower)
	}
}
