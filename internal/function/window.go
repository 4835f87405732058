package function

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/image"
)

// windowName is the export that allocates the window: it gets a number of bytes, and returns the
// address of as many unused bytes, a multiple of 4096.
const windowName = "outboard_arena"

// The window of a function whose settings name no size: as large as the module can allocate.
const (
	defaultWindow = 64 << 20
	leastWindow   = 64 << 10
)

// mapCost is the charge of a call for a mapping, in copied bytes.
const mapCost = 256 << 10

// errNoWindowSpace says that a module could not allocate a window.
var errNoWindowSpace = errors.New("the module could not allocate a window")

// windowSize returns the size that the settings request, in whole pages.
func (s *Settings) windowSize() int {
	size := s.Window
	if size == 0 {
		size = min(defaultWindow, s.Limits.Memory/4)
	}
	return int(size) / image.PageSize * image.PageSize
}

// Window returns how much of an arena a call of the function sees, 0 for nothing. Values beyond it
// are copied.
func (f *Function) Window() outboard.Bytes {
	return outboard.Bytes(f.version.window.To - f.version.window.From)
}

// openWindow lets a template allocate its window, whose address is in the image. If the module
// can't allocate so much, smaller sizes are tried, unless the settings name the size.
func (s *slot) openWindow(ctx context.Context, l *Limits, settings *Settings) (image.Window, error) {
	for size := settings.windowSize(); ; size /= 2 {
		w, err := s.requestWindow(ctx, l, size)
		if !errors.Is(err, errNoWindowSpace) || settings.Window != 0 || size/2 < leastWindow {
			return w, err
		}
	}
}

func (s *slot) requestWindow(ctx context.Context, l *Limits, size int) (image.Window, error) {
	f := s.instance.ExportedFunction(windowName)
	if f == nil {
		return image.Window{}, nil
	}
	if d := f.Definition(); len(d.ParamTypes()) != 1 || d.ParamTypes()[0] != i32 || len(d.ResultTypes()) != 1 || d.ResultTypes()[0] != i32 {
		return image.Window{}, errors.New("it must take one i32 and return one")
	}
	if size >= int(s.limits.Memory) {
		return image.Window{}, fmt.Errorf("a window of %v does not fit into the function's memory limit of %v: raise it, or ask for a smaller window", outboard.Bytes(size), s.limits.Memory)
	}
	at, err := s.run(ctx, f, l, uint64(size))
	if err != nil {
		return image.Window{}, err
	}
	w := image.Window{From: int(at), To: int(at) + size}
	return w, s.checkWindow(w)
}

// checkWindow validates a window: its bounds, its alignment, and that all of it is zero. Whether
// the module uses the memory for something else can't be checked.
func (s *slot) checkWindow(w image.Window) error {
	switch {
	case w.From == 0:
		return fmt.Errorf("%w of %v: ask for a smaller one, or raise the function's memory limit of %v", errNoWindowSpace, outboard.Bytes(w.To), s.limits.Memory)
	case w.From%image.PageSize != 0:
		return fmt.Errorf("it returned %#x: want a multiple of %d", w.From, image.PageSize)
	case w.To > s.memory.size:
		return fmt.Errorf("it returned %#x: %v there are beyond the end of the memory, %#x", w.From, outboard.Bytes(w.To-w.From), s.memory.size)
	}
	memory := s.memory.space.Bytes()[w.From:w.To]
	for at := 0; at < len(memory); at += image.PageSize {
		if page := memory[at : at+image.PageSize]; !bytes.Equal(page, zeroPage[:]) {
			return fmt.Errorf("it returned %#x, but other data lies within the page at %#x: want space that nothing else uses", w.From, w.From+at)
		}
	}
	return nil
}

var zeroPage [image.PageSize]byte

// view is the mapping of arenas over a slot's window. It stays over calls until a call needs
// another arena there.
type view struct {
	space    *image.Range
	window   image.Window
	arena    *Arena // at the window's beginning
	readOnly bool
	free     freeList // for named arenas, behind it; of the call under way
	named    int      // how many of them are mapped
	maps     int      // mappings made in the call under way
}

func (v *view) size() int { return v.window.To - v.window.From }

// visible returns how many bytes of the mapped arena lie within the window.
func (v *view) visible() int {
	if v.arena == nil {
		return 0
	}
	return min(v.arena.Size(), v.size())
}

// mapArena maps the beginning of an arena over the window, or unmaps it for nil. Values beyond the
// window are copied, as for a function without one.
func (v *view) mapArena(a *Arena, readOnly bool) error {
	if v.size() == 0 || a == v.arena && (a == nil || readOnly == v.readOnly) {
		return nil
	}
	if v.arena != nil {
		if err := v.unmapArena(); err != nil {
			return err
		}
	}
	if a == nil {
		return nil
	}
	v.maps++
	if err := v.space.Map(0, min(a.Size(), v.size()), a.file, !readOnly); err != nil {
		return outboard.Errorf(outboard.Exhausted, "", "%w", err)
	}
	v.arena, v.readOnly = a, readOnly
	return nil
}

// unmapArena unmaps the arena.
func (v *view) unmapArena() error {
	v.arena = nil
	v.maps++
	return v.space.Unmap(0)
}

// arenaPlace translates an address of the function's memory to a part of the call's arena.
func (c *invocation) arenaPlace(from, size uint32) (Extent, bool) {
	p := Extent{int(from) - c.slot.view.window.From, int(size)}
	return p, p.Offset >= 0 && c.sees(p)
}

// sees reports whether a part of the call's arena lies within the function's window.
func (c *invocation) sees(p Extent) bool {
	return c.arena != nil && c.slot.view.arena == c.arena && p.Offset+p.Size <= c.slot.view.visible()
}

// mapNamed maps an imported arena behind the call's own, and returns its address.
func (v *view) mapNamed(a *SharedArena) (uint32, error) {
	if v.size() == 0 {
		return 0, fmt.Errorf("the function has no window: export %s", windowName)
	}
	if v.named == 0 {
		v.free = newFreeList(v.size())
		if v.arena != nil {
			v.free.allocate(v.visible())
		}
	}
	at, ok := v.free.allocate(a.Arena.Size())
	if !ok {
		return 0, fmt.Errorf("no room for %v in what is left of the function's window of %v: ask for a larger window", outboard.Bytes(a.Arena.Size()), outboard.Bytes(v.size()))
	}
	v.maps++
	if err := v.space.Map(at, a.Arena.Size(), a.Arena.file, !a.ReadOnly); err != nil {
		v.free.release(Extent{at, a.Arena.Size()})
		return 0, err
	}
	v.named++
	return uint32(v.window.From + at), nil
}

// unmapNamed unmaps an arena that mapNamed mapped.
func (v *view) unmapNamed(address uint32, a *SharedArena) error {
	at := int(address) - v.window.From
	v.free.release(Extent{at, a.Arena.Size()})
	v.named--
	v.maps++
	return v.space.Unmap(at)
}
