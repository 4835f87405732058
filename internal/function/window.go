package function

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/image"
)

// windowName is the export that makes room for the window: it gets a number of bytes,
// and returns where that many begin that nobody else uses, at a multiple of 4096.
const windowName = "outboard_arena"

// The window of a function whose settings ask for none: as much as it has room for.
const (
	defaultWindow = 64 << 20
	leastWindow   = 64 << 10
)

// mapCost is what a mapping costs a call, in bytes that the host moves.
const mapCost = 256 << 10

// errNoRoom is a module's answer that it has no room for a window.
var errNoRoom = errors.New("it found no room for a window")

// windowSize is the size that the settings ask for, in whole pages.
func (s *Settings) windowSize() int {
	size := s.Window
	if size == 0 {
		size = min(defaultWindow, s.Limits.Memory/4)
	}
	return int(size) / image.PageSize * image.PageSize
}

// Window is how much of an arena a call of the function sees, 0 for nothing. Values that lie
// beyond are copied.
func (f *Function) Window() outboard.Bytes {
	return outboard.Bytes(f.version.window.To - f.version.window.From)
}

// openWindow asks a template for its window. The image keeps where it lies. A module that
// has no room for so much is asked for less, unless the settings say how much it has to be.
func (s *slot) openWindow(ctx context.Context, l *Limits, settings *Settings) (image.Window, error) {
	for size := settings.windowSize(); ; size /= 2 {
		w, err := s.askWindow(ctx, l, size)
		if !errors.Is(err, errNoRoom) || settings.Window != 0 || size/2 < leastWindow {
			return w, err
		}
	}
}

func (s *slot) askWindow(ctx context.Context, l *Limits, size int) (image.Window, error) {
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

// checkWindow refuses a window that can't be one. That nobody else uses it can't be seen
// from here, but that nobody wrote there before.
func (s *slot) checkWindow(w image.Window) error {
	switch {
	case w.From == 0:
		return fmt.Errorf("%w of %v: ask for a smaller one, or raise the function's memory limit of %v", errNoRoom, outboard.Bytes(w.To), s.limits.Memory)
	case w.From%image.PageSize != 0:
		return fmt.Errorf("it returned %#x: want a multiple of %d", w.From, image.PageSize)
	case w.To > s.memory.size:
		return fmt.Errorf("it returned %#x: %v there are beyond the end of the memory, %#x", w.From, outboard.Bytes(w.To-w.From), s.memory.size)
	}
	memory := s.memory.space.Bytes()[w.From:w.To]
	for at := 0; at < len(memory); at += image.PageSize {
		if page := memory[at : at+image.PageSize]; !bytes.Equal(page, zeroPage[:]) {
			return fmt.Errorf("it returned %#x, but other data lies within the page at %#x: want room that nobody else uses", w.From, w.From+at)
		}
	}
	return nil
}

var zeroPage [image.PageSize]byte

// A view is what a slot's window shows. What is mapped stays over calls, until a call
// needs something else there.
type view struct {
	window   image.Window
	arena    *Arena // at the window's beginning
	readOnly bool
	room     room // for named arenas, behind it; of the call under way
	named    int  // how many of them are mapped
	maps     int  // mappings made in the call under way
}

func (v *view) size() int { return v.window.To - v.window.From }

// shown is how much of the arena that is mapped the window shows.
func (v *view) shown() int {
	if v.arena == nil {
		return 0
	}
	return min(v.arena.Size(), v.size())
}

// attach has the window show an arena, or nothing. Of one that is larger it shows the
// beginning: what lies beyond is copied, as for a function without a window.
func (s *slot) attach(a *Arena, readOnly bool) error {
	v := &s.view
	if v.size() == 0 || a == v.arena && (a == nil || readOnly == v.readOnly) {
		return nil
	}
	if v.arena != nil {
		if err := s.detach(); err != nil {
			return err
		}
	}
	if a == nil {
		return nil
	}
	v.maps++
	if err := s.memory.space.Map(0, min(a.Size(), v.size()), a.file, !readOnly); err != nil {
		return outboard.Errorf(outboard.Exhausted, "", "%w", err)
	}
	v.arena, v.readOnly = a, readOnly
	return nil
}

// detach has the window show nothing.
func (s *slot) detach() error {
	s.view.arena = nil
	s.view.maps++
	return s.memory.space.Unmap(0)
}

// place finds the part of the call's arena that memory of the function is.
func (s *slot) place(from, size uint32) (Place, bool) {
	p := Place{int(from) - s.view.window.From, int(size)}
	return p, p.Offset >= 0 && s.shows(p)
}

// shows says whether the function sees a part of its call's arena.
func (s *slot) shows(p Place) bool {
	return s.arena != nil && s.view.arena == s.arena && p.Offset+p.Size <= s.view.shown()
}

// mapNamed maps an arena that the call imported, and returns its address.
func (s *slot) mapNamed(a *SharedArena) (uint32, error) {
	v := &s.view
	if v.size() == 0 {
		return 0, fmt.Errorf("the function has no window: export %s", windowName)
	}
	if v.named == 0 {
		v.room = newRoom(v.size())
		if v.arena != nil {
			v.room.take(v.shown())
		}
	}
	at, ok := v.room.take(a.Arena.Size())
	if !ok {
		return 0, fmt.Errorf("no room for %v in what is left of the function's window of %v: ask for a larger window", outboard.Bytes(a.Arena.Size()), outboard.Bytes(v.size()))
	}
	v.maps++
	s.meter.move(mapCost)
	if err := s.memory.space.Map(at, a.Arena.Size(), a.Arena.file, !a.ReadOnly); err != nil {
		v.room.give(Place{at, a.Arena.Size()})
		return 0, err
	}
	v.named++
	return uint32(v.window.From + at), nil
}

// unmapNamed takes an arena out of the window again.
func (s *slot) unmapNamed(address uint32, a *SharedArena) error {
	v := &s.view
	at := int(address) - v.window.From
	v.room.give(Place{at, a.Arena.Size()})
	v.named--
	v.maps++
	return s.memory.space.Unmap(at)
}
