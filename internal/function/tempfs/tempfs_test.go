package tempfs

import (
	"bytes"
	"strings"
	"testing"
)

// newFS returns a file system with that much space, and how much of it is used.
func newFS(space int64) (f *FS, used *int64) {
	used = new(int64)
	return New(func(bytes int64) bool {
		if *used+bytes > space {
			return false
		}
		*used += bytes
		return true
	}), used
}

var (
	creating = How{Create: true, Read: true, Write: true}
	reading  = How{Read: true}
)

func create(t *testing.T, f *FS, path string) uint32 {
	t.Helper()
	fd, e := f.Open(Root, path, creating)
	if e != OK {
		t.Fatalf("open %s: %d", path, e)
	}
	return fd
}

func TestPaths(t *testing.T) {
	f, _ := newFS(1 << 20)
	create(t, f, "tmp/file")
	if e := f.MakeDirectory(Root, "tmp/dir"); e != OK {
		t.Fatal(e)
	}
	tests := map[string]Errno{
		"": NotFound, "/": NotCapable, "/tmp": NotCapable, ".": OK, "..": NotCapable, "tmp/../..": NotCapable,
		"tmp": OK, "tmp/": OK, "tmp//file": OK, "tmp/file/": NotDir, "tmp/file/x": NotDir, "tmp/none": NotFound,
		"tmp/none/x": NotFound, "tmp/dir/../file": OK, "./tmp/./file": OK, "tmp/file/..": NotDir, "a\x00b": Invalid,
		strings.Repeat("a", nameLimit+1): NameTooLong, strings.Repeat("./", pathLimit): NameTooLong,
	}
	for path, want := range tests {
		if _, e := f.StatPath(Root, path); e != want {
			t.Errorf("%q: got %d, want %d", path, e, want)
		}
	}
}

func TestOpen(t *testing.T) {
	f, _ := newFS(1 << 20)
	create(t, f, "tmp/file")
	tests := []struct {
		path string
		how  How
		want Errno
	}{
		{"tmp/none", reading, NotFound},
		{"tmp/file", How{Create: true, Exclusive: true}, Exists},
		{"tmp/file", How{Directory: true}, NotDir},
		{"tmp", How{Directory: true}, OK},
		{"tmp", creating, IsDir},
		{"tmp/new", How{Create: true, Directory: true}, Invalid},
		{"new", creating, ReadOnly},
		{"tmp/.", creating, IsDir},
	}
	for _, test := range tests {
		if _, e := f.Open(Root, test.path, test.how); e != test.want {
			t.Errorf("%s, %+v: got %d, want %d", test.path, test.how, e, test.want)
		}
	}
	n := 0
	for ; n <= maxDescriptors; n++ {
		if _, e := f.Open(Root, "tmp/file", reading); e == TooManyFiles {
			break
		}
	}
	if n > maxDescriptors {
		t.Error("descriptors have no limit")
	}
	if e := f.Close(7); e != OK {
		t.Error(e)
	}
	if fd := create(t, f, "tmp/file"); fd != 7 {
		t.Errorf("descriptor %d was not the lowest free one", fd)
	}
}

// TestContents writes across pages, leaves holes, and cuts.
func TestContents(t *testing.T) {
	f, used := newFS(1 << 20)
	fd := create(t, f, "tmp/file")
	before := *used
	want := make([]byte, 3*pageSize)
	write := func(at int64, data string) {
		t.Helper()
		copy(want[at:], data)
		if n, e := f.WriteAt(fd, []byte(data), at); n != len(data) || e != OK {
			t.Errorf("wrote %d at %d: %d", n, at, e)
		}
	}
	write(pageSize-3, "across")
	write(3*pageSize-1, "z")
	if *used != before+3*pageSize {
		t.Errorf("%d bytes are charged", *used-before)
	}
	got := make([]byte, len(want)+10)
	if n, e := f.ReadAt(fd, got, 0); n != len(want) || e != OK || !bytes.Equal(got[:n], want) {
		t.Errorf("read %d bytes: %d", n, e)
	}
	f.SetSize(fd, pageSize-2)
	f.SetSize(fd, 2*pageSize)
	clear(want[pageSize-2:])
	if n, _ := f.ReadAt(fd, got, 0); !bytes.Equal(got[:n], want[:2*pageSize]) {
		t.Error("the bytes that were cut are still there")
	}
	if at, e := f.Seek(fd, -1, 2); at != 2*pageSize-1 || e != OK {
		t.Errorf("position %d: %d", at, e)
	}
	for _, offset := range []int64{-1 << 63, 1<<63 - 1, -3 * pageSize} {
		if at, e := f.Seek(fd, offset, 1); e != Invalid {
			t.Errorf("seek by %d: position %d, %d", offset, at, e)
		}
	}
	if _, e := f.WriteAt(fd, []byte("x"), sizeLimit); e != TooLarge {
		t.Errorf("a write behind the largest size: %d", e)
	}
}

// TestSpace: what is removed is released once it is closed, and a write ends where the space does.
func TestSpace(t *testing.T) {
	f, used := newFS(3*pageSize + 2048)
	fd := create(t, f, "tmp/file")
	if n, e := f.Write(fd, make([]byte, 4*pageSize)); n != 3*pageSize || e != OK {
		t.Errorf("wrote %d: %d", n, e)
	}
	if _, e := f.Write(fd, []byte("x")); e != NoSpace {
		t.Error(e)
	}
	if e := f.Remove(Root, "tmp/file", false); e != OK || *used < 3*pageSize {
		t.Errorf("%d bytes are left of an open file: %d", *used, e)
	}
	if f.Close(fd); *used != 0 {
		t.Errorf("%d bytes are left", *used)
	}
	for n := 0; ; n++ {
		if e := f.MakeDirectory(Root, "tmp/"+strings.Repeat("d", n+1)); e == NoSpace {
			break
		} else if e != OK || n > 200 {
			t.Fatal("names have no limit: ", e)
		}
	}
}

func TestRename(t *testing.T) {
	f, used := newFS(1 << 20)
	for _, dir := range []string{"tmp/a", "tmp/a/b", "tmp/empty"} {
		if e := f.MakeDirectory(Root, dir); e != OK {
			t.Fatal(e)
		}
	}
	fd := create(t, f, "tmp/file")
	f.Close(create(t, f, "tmp/a/b/old"))
	inner, _ := f.Open(Root, "tmp/a/b", reading)
	tests := []struct {
		from, to string
		want     Errno
	}{
		{"tmp/none", "tmp/x", NotFound},
		{"tmp/a", "tmp/a/b/c", Invalid},
		{"tmp/a", "tmp/a", OK},
		{"tmp", "tmp/a/x", ReadOnly},
		{"tmp/file", "file", ReadOnly},
		{"tmp/file", "tmp/a", IsDir},
		{"tmp/a", "tmp/file", NotDir},
		{"tmp/empty", "tmp/a", NotEmpty},
		{"tmp/a/.", "tmp/x", Invalid},
		{"tmp/file", "tmp/a/b/old", OK},
		{"tmp/a", "tmp/empty", OK},
	}
	for _, test := range tests {
		if e := f.Rename(Root, test.from, Root, test.to); e != test.want {
			t.Errorf("%s to %s: got %d, want %d", test.from, test.to, e, test.want)
		}
	}
	f.Write(fd, []byte("new"))
	if s, e := f.StatPath(inner, "../b/old"); e != OK || s.Size != 3 {
		t.Errorf("the file that was moved: %+v, %d", s, e)
	}
	f.Close(fd)
	f.Remove(inner, "old", false)
	f.Remove(Root, "tmp/empty/b", true)
	if _, e := f.Open(inner, "x", creating); e != NotFound {
		t.Errorf("a file in a removed directory: %d", e)
	}
	f.Close(inner)
	if f.Remove(Root, "tmp/empty", true); *used != 0 {
		t.Errorf("%d bytes are left", *used)
	}
}

func TestEntries(t *testing.T) {
	f, _ := newFS(1 << 20)
	create(t, f, "tmp/b")
	create(t, f, "tmp/a")
	fd, _ := f.Open(Root, "tmp", reading)
	list, e := f.Entries(fd)
	names := ""
	for _, entry := range list {
		names += entry.Name + " "
	}
	if e != OK || names != ". .. a b " {
		t.Errorf("got %s: %d", names, e)
	}
}
