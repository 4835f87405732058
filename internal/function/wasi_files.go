package function

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/outboard-run/outboard/internal/function/tempfs"
)

// provideFiles provides the functions of WASI for files: those of the call's temporary file system.
// They replace the engine's, whose descriptors a reset would not close.
func provideFiles(b wazero.HostModuleBuilder) {
	for name, f := range map[string]struct {
		params   []api.ValueType
		function fileFunction
	}{
		"fd_advise":               {[]api.ValueType{i32, i64, i64, i32}, fdSync},
		"fd_allocate":             {[]api.ValueType{i32, i64, i64}, fdAllocate},
		"fd_close":                {[]api.ValueType{i32}, fdClose},
		"fd_datasync":             {[]api.ValueType{i32}, fdSync},
		"fd_fdstat_get":           {[]api.ValueType{i32, i32}, fdStatGet},
		"fd_fdstat_set_flags":     {[]api.ValueType{i32, i32}, fdSetFlags},
		"fd_filestat_get":         {[]api.ValueType{i32, i32}, fdFileStat},
		"fd_filestat_set_size":    {[]api.ValueType{i32, i64}, fdSetSize},
		"fd_pread":                {[]api.ValueType{i32, i32, i32, i64, i32}, fdPread},
		"fd_prestat_dir_name":     {[]api.ValueType{i32, i32, i32}, fdPrestatName},
		"fd_prestat_get":          {[]api.ValueType{i32, i32}, fdPrestat},
		"fd_pwrite":               {[]api.ValueType{i32, i32, i32, i64, i32}, fdPwrite},
		"fd_read":                 {[]api.ValueType{i32, i32, i32, i32}, fdRead},
		"fd_readdir":              {[]api.ValueType{i32, i32, i32, i64, i32}, fdReadDirectory},
		"fd_seek":                 {[]api.ValueType{i32, i64, i32, i32}, fdSeek},
		"fd_sync":                 {[]api.ValueType{i32}, fdSync},
		"fd_tell":                 {[]api.ValueType{i32, i32}, fdTell},
		"fd_write":                {[]api.ValueType{i32, i32, i32, i32}, fdWrite},
		"path_create_directory":   {[]api.ValueType{i32, i32, i32}, pathCreateDirectory},
		"path_filestat_get":       {[]api.ValueType{i32, i32, i32, i32, i32}, pathFileStat},
		"path_filestat_set_times": {[]api.ValueType{i32, i32, i32, i32, i64, i64, i32}, pathSetTimes},
		"path_open":               {[]api.ValueType{i32, i32, i32, i32, i32, i64, i64, i32, i32}, pathOpen},
		"path_readlink":           {[]api.ValueType{i32, i32, i32, i32, i32, i32}, pathReadLink},
		"path_remove_directory":   {[]api.ValueType{i32, i32, i32}, pathRemoveDirectory},
		"path_rename":             {[]api.ValueType{i32, i32, i32, i32, i32, i32}, pathRename},
		"path_unlink_file":        {[]api.ValueType{i32, i32, i32}, pathUnlink},
	} {
		export(b, name, f.function.with(f.params), f.params, i32)
	}
}

// bytesPerFileCall is the charge for a call, in copied bytes, beside what it copies.
const bytesPerFileCall = 4096

// fileFunction is a function of WASI for files.
type fileFunction func(s *slot, m api.Memory, args []uint64) tempfs.Errno

// with returns the function for the engine, which does not promise the upper half of an i32.
func (f fileFunction) with(params []api.ValueType) api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, stack []uint64) {
		for i, kind := range params {
			if kind == i32 {
				stack[i] = uint64(uint32(stack[i]))
			}
		}
		s := slotOf(ctx)
		s.meter.chargeBytes(bytesPerVector)
		stack[0] = uint64(f(s, m.Memory(), stack))
		s.meter.mayContinue()
	}
}

// fileSystem returns the call's file system. Few calls have one, so it is made when it is used.
func (s *slot) fileSystem() *tempfs.FS {
	if s.files == nil {
		s.files = tempfs.New(s.memory.reserveFiles)
	}
	s.meter.chargeBytes(bytesPerFileCall)
	return s.files
}

// dropFiles ends the call's file system.
func (s *slot) dropFiles() { s.files, s.memory.files = nil, 0 }

func isStream(fd uint64) bool { return uint32(fd) <= lastStdFD }

// fdClose reports that a standard stream is closed, and leaves it open for the next call.
func fdClose(s *slot, _ api.Memory, args []uint64) tempfs.Errno {
	if isStream(args[0]) {
		return tempfs.OK
	}
	return s.fileSystem().Close(uint32(args[0]))
}

// fdSync stands for what has no effect on a file in memory.
func fdSync(s *slot, _ api.Memory, args []uint64) tempfs.Errno {
	if isStream(args[0]) {
		return tempfs.OK
	}
	_, _, e := s.fileSystem().Stat(uint32(args[0]))
	return e
}

// The types of files (WASI preview 1).
const (
	blockDevice, directoryType, regularFile = 1, 3, 4
)

func fileType(s tempfs.Stat) byte {
	if s.Directory {
		return directoryType
	}
	return regularFile
}

// fdStatGet writes the type of a descriptor, its flags and its rights. It names all rights: an
// operation that a file does not permit fails.
func fdStatGet(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	to, ok := m.Read(uint32(args[1]), 24)
	if !ok {
		return wasiFault
	}
	kind, flags := byte(blockDevice), byte(0)
	if !isStream(args[0]) {
		stat, appends, e := s.fileSystem().Stat(uint32(args[0]))
		if e != tempfs.OK {
			return e
		}
		if kind = fileType(stat); appends {
			flags = flagAppend
		}
	}
	clear(to)
	to[0], to[2] = kind, flags
	binary.LittleEndian.PutUint64(to[8:], allRights)
	binary.LittleEndian.PutUint64(to[16:], allRights)
	return tempfs.OK
}

// Flags and rights (WASI preview 1).
const (
	flagAppend            = 1
	allRights             = 1<<30 - 1
	rightRead, rightWrite = 1 << 1, 1 << 6
)

func fdSetFlags(s *slot, _ api.Memory, args []uint64) tempfs.Errno {
	if isStream(args[0]) || args[1]&^flagAppend != 0 {
		return tempfs.Unsupported
	}
	return s.fileSystem().SetAppend(uint32(args[0]), args[1] == flagAppend)
}

func fdFileStat(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	if isStream(args[0]) {
		return writeFileStat(m, uint32(args[1]), blockDevice, tempfs.Stat{})
	}
	stat, _, e := s.fileSystem().Stat(uint32(args[0]))
	if e != tempfs.OK {
		return e
	}
	return writeFileStat(m, uint32(args[1]), fileType(stat), stat)
}

func pathFileStat(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	path, e := readPath(m, args[2], args[3])
	if e != tempfs.OK {
		return e
	}
	stat, e := s.fileSystem().StatPath(uint32(args[0]), path)
	if e != tempfs.OK {
		return e
	}
	return writeFileStat(m, uint32(args[4]), fileType(stat), stat)
}

func writeFileStat(m api.Memory, at uint32, kind byte, stat tempfs.Stat) tempfs.Errno {
	to, ok := m.Read(at, 64)
	if !ok {
		return wasiFault
	}
	clear(to)
	to[16] = kind
	binary.LittleEndian.PutUint64(to[8:], stat.Serial)
	binary.LittleEndian.PutUint64(to[24:], 1) // links
	binary.LittleEndian.PutUint64(to[32:], uint64(stat.Size))
	if !stat.Modified.IsZero() {
		for _, field := range [][]byte{to[40:], to[48:], to[56:]} {
			binary.LittleEndian.PutUint64(field, uint64(stat.Modified.UnixNano()))
		}
	}
	return tempfs.OK
}

// readPath reads a path from a guest's memory. Longer paths than any file can have are not copied.
func readPath(m api.Memory, at, size uint64) (string, tempfs.Errno) {
	if uint32(size) > 2*bytesPerFileCall {
		return "", tempfs.NameTooLong
	}
	b, ok := m.Read(uint32(at), uint32(size))
	if !ok {
		return "", wasiFault
	}
	return string(b), tempfs.OK
}

// The bits of an open and of a change of times (WASI preview 1).
const (
	openCreate, openDirectory, openExclusive, openTruncate = 1, 2, 4, 8
	setModified, setModifiedNow                            = 4, 8
)

func pathOpen(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	path, e := readPath(m, args[2], args[3])
	if e != tempfs.OK {
		return e
	}
	result, ok := m.Read(uint32(args[8]), 4)
	if !ok {
		return wasiFault
	}
	flags, rights := args[4], args[5]
	fd, e := s.fileSystem().Open(uint32(args[0]), path, tempfs.How{
		Create: flags&openCreate != 0, Directory: flags&openDirectory != 0,
		Exclusive: flags&openExclusive != 0, Truncate: flags&openTruncate != 0,
		Append: args[7]&flagAppend != 0, Read: rights&rightRead != 0, Write: rights&rightWrite != 0,
	})
	if e == tempfs.OK {
		binary.LittleEndian.PutUint32(result, fd)
	}
	return e
}

func pathSetTimes(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	path, e := readPath(m, args[2], args[3])
	if e != tempfs.OK {
		return e
	}
	switch {
	case args[6]&setModifiedNow != 0:
		return s.fileSystem().SetModified(uint32(args[0]), path, time.Now())
	case args[6]&setModified != 0:
		return s.fileSystem().SetModified(uint32(args[0]), path, time.Unix(0, int64(args[5])))
	}
	_, e = s.fileSystem().StatPath(uint32(args[0]), path)
	return e
}

// pathReadLink reports that a file is no link.
func pathReadLink(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	path, e := readPath(m, args[1], args[2])
	if e != tempfs.OK {
		return e
	}
	if _, e := s.fileSystem().StatPath(uint32(args[0]), path); e != tempfs.OK {
		return e
	}
	return tempfs.Invalid
}

func pathCreateDirectory(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	path, e := readPath(m, args[1], args[2])
	if e != tempfs.OK {
		return e
	}
	return s.fileSystem().MakeDirectory(uint32(args[0]), path)
}

func pathRemoveDirectory(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	return removePath(s, m, args, true)
}

func pathUnlink(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	return removePath(s, m, args, false)
}

func removePath(s *slot, m api.Memory, args []uint64, directory bool) tempfs.Errno {
	path, e := readPath(m, args[1], args[2])
	if e != tempfs.OK {
		return e
	}
	return s.fileSystem().Remove(uint32(args[0]), path, directory)
}

func pathRename(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	from, e := readPath(m, args[1], args[2])
	if e != tempfs.OK {
		return e
	}
	to, e := readPath(m, args[4], args[5])
	if e != tempfs.OK {
		return e
	}
	return s.fileSystem().Rename(uint32(args[0]), from, uint32(args[3]), to)
}

// rootName is the name of the only directory that is open from the start.
const rootName = "/"

func fdPrestat(_ *slot, m api.Memory, args []uint64) tempfs.Errno {
	if uint32(args[0]) != tempfs.Root {
		return tempfs.BadFD
	}
	if !m.WriteUint32Le(uint32(args[1]), 0) || !m.WriteUint32Le(uint32(args[1])+4, uint32(len(rootName))) {
		return wasiFault
	}
	return tempfs.OK
}

func fdPrestatName(_ *slot, m api.Memory, args []uint64) tempfs.Errno {
	switch {
	case uint32(args[0]) != tempfs.Root:
		return tempfs.BadFD
	case uint32(args[2]) < uint32(len(rootName)):
		return tempfs.NameTooLong
	case !m.WriteString(uint32(args[1]), rootName):
		return wasiFault
	}
	return tempfs.OK
}

func fdSetSize(s *slot, _ api.Memory, args []uint64) tempfs.Errno {
	return s.fileSystem().SetSize(uint32(args[0]), int64(args[1]))
}

// fdAllocate extends a file. Space is reserved when it is written.
func fdAllocate(s *slot, _ api.Memory, args []uint64) tempfs.Errno {
	if args[1] > math.MaxInt32 || args[2] > math.MaxInt32 {
		return tempfs.TooLarge
	}
	files, size := s.fileSystem(), int64(args[1]+args[2])
	stat, _, e := files.Stat(uint32(args[0]))
	if e != tempfs.OK || stat.Size >= size {
		return e
	}
	return files.SetSize(uint32(args[0]), size)
}

// fdRead reads a file. Standard input is empty.
func fdRead(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	switch {
	case args[0] == 0:
		return writeSize(m, args[3], 0)
	case isStream(args[0]):
		return tempfs.BadFD
	}
	return s.transfer(m, args[1], args[2], args[3], func(b []byte) (int, tempfs.Errno) {
		return s.fileSystem().Read(uint32(args[0]), b)
	})
}

// fdWrite writes to standard output or error, or to a file.
func fdWrite(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	if isStream(args[0]) {
		return s.write(m, uint32(args[0]), args[1], args[2], args[3])
	}
	return s.transfer(m, args[1], args[2], args[3], func(b []byte) (int, tempfs.Errno) {
		return s.fileSystem().Write(uint32(args[0]), b)
	})
}

func fdPread(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	return s.transferAt(m, args, s.fileSystem().ReadAt)
}

func fdPwrite(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	return s.transferAt(m, args, s.fileSystem().WriteAt)
}

// transferAt is transfer with an operation on a descriptor from an offset on: the arguments of fd_pread
// and fd_pwrite.
func (s *slot) transferAt(m api.Memory, args []uint64, operation func(uint32, []byte, int64) (int, tempfs.Errno)) tempfs.Errno {
	offset := int64(args[3])
	return s.transfer(m, args[1], args[2], args[4], func(b []byte) (int, tempfs.Errno) {
		n, e := operation(uint32(args[0]), b, offset)
		offset += int64(n)
		return n, e
	})
}

// transferChunk is how many bytes are copied between two checks of the deadline.
const transferChunk = 1 << 20

// transfer calls operation for the bytes of vectors of a guest's memory, address and size each, up
// to the first that it does not process as a whole, and stores the number of bytes at result. An
// error after the first bytes is not reported: the next call meets it again.
func (s *slot) transfer(m api.Memory, vectors, count, result uint64, operation func([]byte) (int, tempfs.Errno)) tempfs.Errno {
	if uint32(count) > maxVectors {
		return wasiInvalid
	}
	list, ok := m.Read(uint32(vectors), 8*uint32(count))
	if !ok {
		return wasiFault
	}
	total := uint32(0)
	for first := true; len(list) > 0 || first; first = false {
		var b []byte
		if len(list) > 0 {
			if b, ok = m.Read(binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:])); !ok {
				return wasiFault
			}
			list = list[8:]
		}
		n, e := s.transferChunks(b, operation)
		if total += uint32(n); e != tempfs.OK && total == 0 {
			return e
		}
		if n < len(b) {
			break
		}
	}
	return writeSize(m, result, total)
}

func (s *slot) transferChunks(b []byte, operation func([]byte) (int, tempfs.Errno)) (total int, e tempfs.Errno) {
	for first := true; first || total < len(b) && s.meter.mayContinue(); first = false {
		part := b[total:min(len(b), total+transferChunk)]
		n, e := operation(part)
		s.meter.chargeBytes(n + bytesPerVector)
		if total += n; e != tempfs.OK || n < len(part) {
			return total, e
		}
	}
	return total, tempfs.OK
}

func writeSize(m api.Memory, at uint64, size uint32) tempfs.Errno {
	if !m.WriteUint32Le(uint32(at), size) {
		return wasiFault
	}
	return tempfs.OK
}

func fdSeek(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	if isStream(args[0]) {
		return notSeekable
	}
	position, e := s.fileSystem().Seek(uint32(args[0]), int64(args[1]), uint32(args[2]))
	if e == tempfs.OK && !m.WriteUint64Le(uint32(args[3]), uint64(position)) {
		return wasiFault
	}
	return e
}

func fdTell(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	return fdSeek(s, m, []uint64{args[0], 0, 1, args[1]})
}

// notSeekable is the error of a stream that is asked for its position (WASI preview 1, spipe).
const notSeekable tempfs.Errno = 70

// fdReadDirectory writes entries from a cookie on, as many as there is space for, the last one cut.
func fdReadDirectory(s *slot, m api.Memory, args []uint64) tempfs.Errno {
	to, ok := m.Read(uint32(args[1]), uint32(args[2]))
	if !ok {
		return wasiFault
	}
	entries, e := s.fileSystem().Entries(uint32(args[0]))
	if e != tempfs.OK {
		return e
	}
	s.meter.chargeBytes(len(entries) * bytesPerFileCall)
	used := 0
	for i := args[3]; i < uint64(len(entries)) && used < len(to); i++ {
		used += copy(to[used:], directoryEntry(entries[i], i+1))
	}
	s.meter.chargeBytes(used)
	return writeSize(m, args[4], uint32(used))
}

// directoryEntry encodes an entry. next is the cookie of the one that follows.
func directoryEntry(entry tempfs.Entry, next uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, next)
	b = binary.LittleEndian.AppendUint64(b, entry.Stat.Serial)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entry.Name)))
	b = binary.LittleEndian.AppendUint32(b, uint32(fileType(entry.Stat)))
	return append(b, entry.Name...)
}
