package function

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// What one call may import.
const (
	// maxHandles is how many imports a call holds at a time.
	maxHandles = 64
	// maxImports is how many names are told apart in Response.Imports; the others come
	// under one, otherImports.
	maxImports   = 128
	otherImports = "others"
	// maxName is how long the name of an import or of metadata may be.
	maxName = 256
)

// An imports is what the call under way imported. A handle is a number that means
// something in this call only, so there is nothing to forge: one that was not given out,
// or was dropped, is in no table.
type imports struct {
	handles []handle
	last    int32
	records []Import
}

type handle struct {
	number   int32
	resource Resource
	record   int    // in records
	address  uint32 // of an arena that is mapped, or 0
}

// add notes a resource and returns its number.
func (i *imports) add(r Resource, record int) int32 {
	i.last++
	i.handles = append(i.handles, handle{number: i.last, resource: r, record: record})
	return i.last
}

func (i *imports) find(number int32) (*handle, error) {
	for n := range i.handles {
		if h := &i.handles[n]; h.number == number {
			return h, nil
		}
	}
	return nil, fmt.Errorf("%d is no handle of this call: it was dropped, or never given out", number)
}

func (i *imports) remove(number int32) {
	i.handles = slices.DeleteFunc(i.handles, func(h handle) bool { return h.number == number })
}

// record returns where a name is noted.
func (i *imports) record(name string) int {
	n := slices.IndexFunc(i.records, func(r Import) bool { return r.Name == name })
	switch {
	case n >= 0:
		return n
	case len(i.records) >= maxImports && name != otherImports:
		return i.record(otherImports)
	}
	i.records = append(i.records, Import{Name: name})
	return len(i.records) - 1
}

// spent notes a host call.
func (i *imports) spent(record int, since time.Time) *Import {
	r := &i.records[record]
	r.Calls++
	r.Time += time.Since(since)
	return r
}

// context is that of what the call waits for: it ends with the call's deadline.
func (s *slot) context() context.Context {
	s.watch.Leave()
	if s.cancel == nil {
		s.waiting, s.cancel = context.WithDeadlineCause(s.caller, s.meter.deadline, s.limits.deadlineError())
	}
	return s.waiting
}

// importName imports a resource and returns its handle.
func (s *slot) importName(name string) (number int32, err error) {
	if len(s.imports.handles) == maxHandles {
		return 0, fmt.Errorf("import %s: a call may hold %d imports at a time: drop one", name, maxHandles)
	}
	begin := time.Now()
	record := s.imports.record(name)
	defer func() {
		i := s.imports.spent(record, begin)
		i.Waited += time.Since(begin)
		i.refused(err)
	}()
	if s.resources == nil {
		return 0, fmt.Errorf("import %s: there is nothing to import", name)
	}
	r, err := s.resources.Import(s.context(), name)
	switch {
	case err != nil:
		return 0, fmt.Errorf("import %s: %w", name, err)
	case r == nil:
		return 0, fmt.Errorf("import %s: there is no such thing", name)
	}
	return s.imports.add(r, record), nil
}

func (i *Import) refused(err error) {
	i.Err = ""
	if err != nil {
		i.Err = err.Error()
	}
}

// drop gives one import up.
func (s *slot) drop(number int32) error {
	h, err := s.imports.find(number)
	if err != nil {
		return err
	}
	s.release(h)
	s.imports.remove(number)
	return nil
}

// release gives up what a handle holds. What can't be unmapped closes the instance
// rather than show what is no longer held.
func (s *slot) release(h *handle) {
	if a, ok := h.resource.(*SharedArena); ok && h.address != 0 {
		if err := s.unmapNamed(h.address, a); err != nil {
			s.broken = errors.Join(s.broken, err)
		}
	}
	h.resource.Release()
}

// dropAll ends what the call imported.
func (s *slot) dropAll() []Import {
	for n := range s.imports.handles {
		s.release(&s.imports.handles[n])
	}
	clear(s.imports.handles)
	records := s.imports.records
	s.imports = imports{handles: s.imports.handles[:0]}
	if s.cancel != nil {
		s.cancel()
		s.waiting, s.cancel = nil, nil
	}
	return records
}

// as finds a handle's resource, which has to be of a kind.
func as[T Resource](s *slot, number int32, kind string) (t T, h *handle, err error) {
	if h, err = s.imports.find(number); err != nil {
		return t, nil, err
	}
	t, ok := h.resource.(T)
	if !ok {
		return t, nil, fmt.Errorf("%s is no %s", s.imports.records[h.record].Name, kind)
	}
	return t, h, nil
}
