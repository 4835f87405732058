package tempfs

import (
	"slices"
	"strings"
	"time"
)

// descriptor is an open file.
type descriptor struct {
	node        *node
	offset      int64
	read, write bool
	appends     bool
}

// How describes how to open a file.
type How struct {
	Create, Directory, Exclusive, Truncate bool
	Append, Read, Write                    bool
}

// Open opens a file or directory and returns the lowest free descriptor.
func (f *FS) Open(dirFD uint32, path string, how How) (fd uint32, e Errno) {
	in, name, n, e := f.lookup(dirFD, path)
	if e != OK {
		return 0, e
	}
	at := slices.Index(f.descriptors, nil)
	if at < 0 && len(f.descriptors) >= maxDescriptors {
		return 0, TooManyFiles
	}
	if n == nil {
		if !how.Create {
			return 0, NotFound
		}
		if how.Directory {
			return 0, Invalid
		}
		if n, e = f.create(in, name, false); e != OK {
			return 0, e
		}
	} else if e := n.mayOpen(how); e != OK {
		return 0, e
	}
	if how.Truncate {
		f.resize(n, 0)
	}
	d := &descriptor{node: n, read: how.Read, write: how.Write, appends: how.Append}
	n.opened++
	if at < 0 {
		at = len(f.descriptors)
		f.descriptors = append(f.descriptors, nil)
	}
	f.descriptors[at] = d
	return uint32(at) + Root, OK
}

// mayOpen reports whether an existing file can be opened so.
func (n *node) mayOpen(how How) Errno {
	switch {
	case how.Create && how.Exclusive:
		return Exists
	case how.Directory && n.children == nil:
		return NotDir
	case n.children != nil && (how.Truncate || how.Create):
		return IsDir
	}
	return OK
}

func (f *FS) descriptor(fd uint32) (*descriptor, Errno) {
	if fd < Root || fd-Root >= uint32(len(f.descriptors)) || f.descriptors[fd-Root] == nil {
		return nil, BadFD
	}
	return f.descriptors[fd-Root], OK
}

// file returns the descriptor of a file that is no directory.
func (f *FS) file(fd uint32) (*descriptor, Errno) {
	d, e := f.descriptor(fd)
	if e == OK && d.node.children != nil {
		return nil, IsDir
	}
	return d, e
}

func (f *FS) directory(fd uint32) (*descriptor, Errno) {
	d, e := f.descriptor(fd)
	if e == OK && d.node.children == nil {
		return nil, NotDir
	}
	return d, e
}

// Close closes a descriptor.
func (f *FS) Close(fd uint32) Errno {
	d, e := f.descriptor(fd)
	if e != OK {
		return e
	}
	f.descriptors[fd-Root] = nil
	d.node.opened--
	f.releaseUnused(d.node)
	return OK
}

// Stat describes an open file, and whether it appends.
func (f *FS) Stat(fd uint32) (s Stat, appends bool, e Errno) {
	d, e := f.descriptor(fd)
	if e != OK {
		return Stat{}, false, e
	}
	return d.node.stat(), d.appends, OK
}

// SetAppend says whether writes append.
func (f *FS) SetAppend(fd uint32, appends bool) Errno {
	d, e := f.file(fd)
	if e == OK {
		d.appends = appends
	}
	return e
}

// Read reads from the descriptor's position on.
func (f *FS) Read(fd uint32, to []byte) (n int, e Errno) {
	d, e := f.file(fd)
	if e != OK {
		return 0, e
	}
	n, e = f.ReadAt(fd, to, d.offset)
	d.offset += int64(n)
	return n, e
}

// ReadAt reads from an offset. At the end it returns 0.
func (f *FS) ReadAt(fd uint32, to []byte, offset int64) (n int, e Errno) {
	d, e := f.file(fd)
	switch {
	case e != OK:
		return 0, e
	case !d.read:
		return 0, BadFD
	case offset < 0:
		return 0, Invalid
	}
	to = to[:max(0, min(int64(len(to)), d.node.size-offset))]
	for n < len(to) {
		at := offset + int64(n)
		part := to[n:min(len(to), n+int(pageSize-at%pageSize))]
		if page := d.node.pages[at/pageSize]; page != nil {
			copy(part, page[at%pageSize:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	return n, OK
}

// Write writes at the descriptor's position, or at the end.
func (f *FS) Write(fd uint32, from []byte) (n int, e Errno) {
	d, e := f.file(fd)
	if e != OK {
		return 0, e
	}
	if d.appends {
		d.offset = d.node.size
	}
	n, e = f.WriteAt(fd, from, d.offset)
	d.offset += int64(n)
	return n, e
}

// WriteAt writes at an offset. It writes less if there is no more space.
func (f *FS) WriteAt(fd uint32, from []byte, offset int64) (n int, e Errno) {
	d, e := f.file(fd)
	switch {
	case e != OK:
		return 0, e
	case !d.write:
		return 0, BadFD
	case offset < 0:
		return 0, Invalid
	case offset > sizeLimit-int64(len(from)):
		return 0, TooLarge
	}
	for n < len(from) {
		at := offset + int64(n)
		page := f.page(d.node, at/pageSize)
		if page == nil {
			break
		}
		n += copy(page[at%pageSize:], from[n:])
		d.node.size = max(d.node.size, offset+int64(n))
	}
	if n == 0 && len(from) > 0 {
		return 0, NoSpace
	}
	d.node.modified = time.Now()
	return n, OK
}

// page returns a page of a file to write to, or nil if there is no space for it.
func (f *FS) page(n *node, index int64) *[pageSize]byte {
	if page := n.pages[index]; page != nil {
		return page
	}
	if !f.reserve(pageSize) {
		return nil
	}
	n.charged += pageSize
	if n.pages == nil {
		n.pages = make(map[int64]*[pageSize]byte)
	}
	page := new([pageSize]byte)
	n.pages[index] = page
	return page
}

// SetSize cuts a file, or extends it by a hole.
func (f *FS) SetSize(fd uint32, size int64) Errno {
	d, e := f.file(fd)
	switch {
	case e != OK:
		return e
	case !d.write:
		return BadFD
	case size < 0:
		return Invalid
	case size > sizeLimit:
		return TooLarge
	}
	f.resize(d.node, size)
	return OK
}

func (f *FS) resize(n *node, size int64) {
	for index, page := range n.pages {
		switch start := index * pageSize; {
		case start >= size:
			delete(n.pages, index)
			n.charged -= pageSize
			f.reserve(-pageSize)
		case start+pageSize > size:
			clear(page[size-start:])
		}
	}
	n.size, n.modified = size, time.Now()
}

// Seek moves the position relative to the start (0), the position (1) or the end (2).
func (f *FS) Seek(fd uint32, offset int64, whence uint32) (position int64, e Errno) {
	d, e := f.file(fd)
	if e != OK {
		return 0, e
	}
	switch whence {
	case 0:
	case 1:
		position = d.offset
	case 2:
		position = d.node.size
	default:
		return 0, Invalid
	}
	// The position is at most sizeLimit, so that a sum out of range is negative or large.
	if position += offset; position < 0 || position > sizeLimit {
		return 0, Invalid
	}
	d.offset = position
	return position, OK
}

// Entry is an entry of a directory.
type Entry struct {
	Name string
	Stat Stat
}

// Entries lists an open directory by name, with itself and the directory above.
func (f *FS) Entries(fd uint32) ([]Entry, Errno) {
	d, e := f.directory(fd)
	if e != OK {
		return nil, e
	}
	list := []Entry{{".", d.node.stat()}, {"..", d.node.parent.stat()}}
	for name, n := range d.node.children {
		list = append(list, Entry{name, n.stat()})
	}
	slices.SortFunc(list[2:], func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return list, OK
}
