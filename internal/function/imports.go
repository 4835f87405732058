package function

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The limits of one call's imports.
const (
	// maxHandles is how many imports a call holds at a time.
	maxHandles = 64
	// maxImports is the number of names that Response.Imports tells apart; all further names are
	// counted under otherImports.
	maxImports   = 128
	otherImports = "others"
	// maxName is how long the name of an import or of metadata may be.
	maxName = 256
)

// importTable has the resources that a call imported. A handle is valid in this call only, so there
// is nothing to forge: a handle that was not issued, or was dropped, is in no table.
type importTable struct {
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

// add adds a resource and returns the number of its handle.
func (i *importTable) add(r Resource, record int) int32 {
	i.last++
	i.handles = append(i.handles, handle{number: i.last, resource: r, record: record})
	return i.last
}

func (i *importTable) find(number int32) (*handle, error) {
	for n := range i.handles {
		if h := &i.handles[n]; h.number == number {
			return h, nil
		}
	}
	return nil, fmt.Errorf("%d is no handle of this call: it was dropped, or never given out", number)
}

func (i *importTable) remove(number int32) {
	i.handles = slices.DeleteFunc(i.handles, func(h handle) bool { return h.number == number })
}

// record returns the index of a name's record, which it adds if there is none.
func (i *importTable) record(name string) int {
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

// recordUse counts a host call.
func (i *importTable) recordUse(record int, since time.Time) *Import {
	r := &i.records[record]
	r.Calls++
	r.Time += time.Since(since)
	return r
}

// context returns the context of the operations for which the call waits: it ends with the call's
// deadline.
func (c *invocation) context() context.Context {
	c.slot.watch.Leave()
	if end := c.slot.meter.deadline; c.cancel == nil || end.Sub(c.until) > time.Second { // it has moved
		before := c.cancel // operations with the earlier deadline keep it
		ctx, cancel := context.WithDeadlineCause(c.caller, end, c.slot.limits.deadlineError())
		c.waiting, c.until, c.cancel = ctx, end, func() {
			cancel()
			if before != nil {
				before()
			}
		}
	}
	return c.waiting
}

// importName imports a resource and returns its handle.
func (c *invocation) importName(name string) (number int32, err error) {
	if len(c.imports.handles) == maxHandles {
		return 0, fmt.Errorf("import %s: a call may hold %d imports at a time: drop one", name, maxHandles)
	}
	begin := time.Now()
	record := c.imports.record(name)
	defer func() {
		waited := time.Since(begin)
		i := c.imports.recordUse(record, begin)
		i.Waited += waited
		i.refused(err)
	}()
	if c.resources == nil {
		return 0, fmt.Errorf("import %s: there is nothing to import", name)
	}
	r, err := c.resources.Import(c.context(), name)
	switch {
	case err != nil:
		return 0, fmt.Errorf("import %s: %w", name, err)
	case r == nil:
		return 0, fmt.Errorf("import %s: there is no such thing", name)
	}
	return c.imports.add(r, record), nil
}

func (i *Import) refused(err error) {
	i.Err = ""
	if err != nil {
		i.Err = err.Error()
	}
}

// dropHandle releases one import.
func (c *invocation) dropHandle(number int32) error {
	h, err := c.imports.find(number)
	if err != nil {
		return err
	}
	c.release(h)
	c.imports.remove(number)
	return nil
}

// release frees the resource of a handle. An arena that can't be unmapped closes the instance.
func (c *invocation) release(h *handle) {
	if a, ok := h.resource.(*SharedArena); ok && h.address != 0 {
		if err := c.slot.view.unmapNamed(h.address, a); err != nil {
			c.slot.broken = errors.Join(c.slot.broken, err)
		}
	}
	h.resource.Release()
}

// dropAll releases all imports of the call, and returns their records.
func (c *invocation) dropAll() []Import {
	c.text.closeAll()
	for n := range c.imports.handles {
		c.release(&c.imports.handles[n])
	}
	clear(c.imports.handles)
	records := c.imports.records
	c.nn = nnState{}
	c.imports = importTable{handles: c.imports.handles[:0]}
	if c.cancel != nil {
		c.cancel()
		c.waiting, c.cancel = nil, nil
	}
	return records
}

// resourceAs returns a handle's resource if it is of type T.
func resourceAs[T Resource](c *invocation, number int32, kind string) (t T, h *handle, err error) {
	if h, err = c.imports.find(number); err != nil {
		return t, nil, err
	}
	t, ok := h.resource.(T)
	if !ok {
		return t, nil, fmt.Errorf("%s is no %s", c.imports.records[h.record].Name, kind)
	}
	return t, h, nil
}
