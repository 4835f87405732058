// Package tempfs is a file system in memory for the temporary files of one call of a function. Its
// root is read-only and has one directory, tmp, which is writable. Errors are those of WASI
// preview 1. There are no links, owners or permissions.
package tempfs

import (
	"strings"
	"time"
)

// Errno is an error code of WASI preview 1.
type Errno uint32

// The codes that are returned here.
const (
	OK             Errno = 0
	BadFD          Errno = 8
	Exists         Errno = 20
	TooLarge       Errno = 22
	Invalid        Errno = 28
	IsDir          Errno = 31
	TooManyFiles   Errno = 33
	NameTooLong    Errno = 37
	NotFound       Errno = 44
	NoSpace        Errno = 51
	NotDir         Errno = 54
	NotEmpty       Errno = 55
	Unsupported    Errno = 58
	ReadOnly       Errno = 69
	NotCapable     Errno = 76
	nameLimit            = 255
	pathLimit            = 4096
	pageSize             = 16 << 10
	sizeLimit            = 1 << 40 // of a file, holes included
	bytesPerEntry        = 512     // of a node, its maps and its descriptors
	maxDescriptors       = 1024
)

// Root is the descriptor of the root directory.
const Root = 3

// FS is a file system with its open descriptors. It is for one goroutine.
type FS struct {
	root        *node
	descriptors []*descriptor // of Root and the following; nil: free
	reserve     func(bytes int64) bool
	serial      uint64
}

// node is a file, or a directory if children is not nil.
type node struct {
	children map[string]*node
	parent   *node // of a directory; the root is its own
	readOnly bool
	linked   bool // it has a name
	opened   int  // descriptors
	charged  int64
	size     int64
	pages    map[int64]*[pageSize]byte // by index; a missing one is a hole
	modified time.Time
	serial   uint64
}

// New returns a file system. reserve is asked for each byte that the file system occupies, and may
// refuse; it is called with a negative number when bytes are released.
func New(reserve func(bytes int64) bool) *FS {
	f := &FS{reserve: reserve}
	f.root = f.newNode(true)
	f.root.parent, f.root.readOnly, f.root.linked = f.root, true, true
	tmp := f.newNode(true)
	tmp.parent, tmp.linked = f.root, true
	f.root.children["tmp"] = tmp
	f.descriptors = []*descriptor{{node: f.root, read: true}}
	return f
}

func (f *FS) newNode(directory bool) *node {
	f.serial++
	n := &node{modified: time.Now(), serial: f.serial}
	if directory {
		n.children = make(map[string]*node)
	}
	return n
}

// create adds a node to a directory.
func (f *FS) create(in *node, name string, directory bool) (*node, Errno) {
	switch {
	case in.readOnly:
		return nil, ReadOnly
	case !in.linked:
		return nil, NotFound
	}
	charge := int64(bytesPerEntry + len(name))
	if !f.reserve(charge) {
		return nil, NoSpace
	}
	n := f.newNode(directory)
	n.parent, n.linked, n.charged = in, true, charge
	in.children[name] = n
	in.modified = n.modified
	return n, OK
}

// unlink removes a name. The contents stay while the file is open.
func (f *FS) unlink(in *node, name string) {
	n := in.children[name]
	delete(in.children, name)
	in.modified = time.Now()
	n.linked = false
	f.releaseUnused(n)
}

func (f *FS) releaseUnused(n *node) {
	if !n.linked && n.opened == 0 {
		f.reserve(-n.charged)
		n.charged, n.pages = 0, nil
	}
}

// lookup resolves a path relative to an open directory. in is the directory that contains the file,
// name its name there, and n is nil if there is no such file. name is empty if the path ends with
// "." or "..": then in is the directory itself.
func (f *FS) lookup(dirFD uint32, path string) (in *node, name string, n *node, e Errno) {
	d, e := f.directory(dirFD)
	if e == OK {
		e = checkPath(path)
	}
	if e != OK {
		return nil, "", nil, e
	}
	in, n = d.node, d.node
	for element := range strings.SplitSeq(path, "/") {
		if element == "" {
			continue
		}
		if in, n, e = f.step(n, element); e != OK {
			return nil, "", nil, e
		}
		if name = element; in == n {
			name = ""
		}
	}
	if n != nil && n.children == nil && strings.HasSuffix(path, "/") {
		return nil, "", nil, NotDir
	}
	return in, name, n, OK
}

// step resolves one element of a path.
func (f *FS) step(from *node, element string) (in, n *node, e Errno) {
	switch {
	case from == nil:
		return nil, nil, NotFound
	case from.children == nil:
		return nil, nil, NotDir
	case len(element) > nameLimit:
		return nil, nil, NameTooLong
	case element == ".":
		return from, from, OK
	case element == ".." && from == f.root:
		return nil, nil, NotCapable
	case element == "..":
		return from.parent, from.parent, OK
	}
	return from, from.children[element], OK
}

func checkPath(path string) Errno {
	switch {
	case path == "":
		return NotFound
	case len(path) > pathLimit:
		return NameTooLong
	case path[0] == '/':
		return NotCapable
	case strings.ContainsRune(path, 0):
		return Invalid
	}
	return OK
}

// Stat describes a file.
type Stat struct {
	Serial    uint64
	Directory bool
	Size      int64
	Modified  time.Time
}

func (n *node) stat() Stat {
	return Stat{n.serial, n.children != nil, n.size, n.modified}
}

// StatPath describes the file of a path.
func (f *FS) StatPath(dirFD uint32, path string) (Stat, Errno) {
	_, _, n, e := f.lookup(dirFD, path)
	switch {
	case e != OK:
		return Stat{}, e
	case n == nil:
		return Stat{}, NotFound
	}
	return n.stat(), OK
}

// SetModified changes a file's time.
func (f *FS) SetModified(dirFD uint32, path string, to time.Time) Errno {
	_, _, n, e := f.lookup(dirFD, path)
	switch {
	case e != OK:
		return e
	case n == nil:
		return NotFound
	case n.readOnly:
		return ReadOnly
	}
	n.modified = to
	return OK
}

// MakeDirectory creates a directory.
func (f *FS) MakeDirectory(dirFD uint32, path string) Errno {
	in, name, n, e := f.lookup(dirFD, path)
	switch {
	case e != OK:
		return e
	case n != nil:
		return Exists
	}
	_, e = f.create(in, name, true)
	return e
}

// Remove removes a file, or an empty directory.
func (f *FS) Remove(dirFD uint32, path string, directory bool) Errno {
	in, name, n, e := f.lookup(dirFD, path)
	switch {
	case e != OK:
		return e
	case n == nil:
		return NotFound
	case name == "":
		return Invalid
	case in.readOnly:
		return ReadOnly
	case directory && n.children == nil:
		return NotDir
	case !directory && n.children != nil:
		return IsDir
	case len(n.children) > 0:
		return NotEmpty
	}
	f.unlink(in, name)
	return OK
}

// Rename moves a file or directory, and replaces a file or an empty directory of the new name.
func (f *FS) Rename(fromFD uint32, from string, toFD uint32, to string) Errno {
	fromIn, fromName, n, e := f.lookup(fromFD, from)
	if e != OK {
		return e
	}
	toIn, toName, old, e := f.lookup(toFD, to)
	switch {
	case e != OK:
		return e
	case n == nil:
		return NotFound
	case fromName == "" || toName == "":
		return Invalid
	case fromIn.readOnly || toIn.readOnly:
		return ReadOnly
	case !toIn.linked:
		return NotFound
	case n == old:
		return OK
	case toIn.isWithin(n):
		return Invalid
	}
	if old != nil {
		if e := f.Remove(toFD, to, n.children != nil); e != OK {
			return e
		}
	}
	delete(fromIn.children, fromName)
	toIn.children[toName], n.parent = n, toIn
	fromIn.modified, toIn.modified = time.Now(), time.Now()
	return OK
}

// isWithin reports whether a directory is the other one, or below it.
func (n *node) isWithin(other *node) bool {
	for n != other && n.parent != n {
		n = n.parent
	}
	return n == other
}
