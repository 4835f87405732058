package lend

import (
	"bytes"
	"path/filepath"
	"strings"
)

// cacheVariables are where drivers keep compiled kernels. A worker's driver
// keeps them in the folder of the session's holder: what one holder compiled is
// never run by another.
var cacheVariables = []string{"XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH", "NEO_CACHE_DIR", "cl_cache_dir"}

// workerEnviron is the environment of a worker. What `outboard run` gave this
// process is dropped: a worker loads the machine's own drivers.
func workerEnviron(environ []string, cache, tmp string) []string {
	borrowed := false
	for _, v := range environ {
		borrowed = borrowed || strings.HasPrefix(v, "OUTBOARD_SOCKET=")
	}
	var out []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "OUTBOARD_") || borrowed && name == "OCL_ICD_VENDORS" {
			continue
		}
		out = append(out, v)
	}
	for _, name := range cacheVariables {
		out = append(out, name+"="+filepath.Join(cache, strings.ToLower(name)))
	}
	return append(out, "TMPDIR="+tmp, "HOME="+tmp)
}

// summary makes one line of the end of a process's standard error: the line
// that says why it ended.
func summary(tail []byte) string {
	lines := bytes.Split(bytes.TrimSpace(tail), []byte("\n"))
	best := lines[len(lines)-1]
	for _, l := range lines {
		// Go's runtime puts the reason first and the stacks after it.
		if bytes.HasPrefix(l, []byte("panic: ")) || bytes.HasPrefix(l, []byte("fatal error: ")) {
			best = l
			break
		}
	}
	return strings.ToValidUTF8(string(best[:min(len(best), 300)]), "?")
}
