package opencl

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A Recipe contains everything that a compile step needs to compile a program, or a kernel of it
// for one launch, in a process that executes no kernel. It comes from a worker, which may have
// executed any code, so it is untrusted data. A forged recipe can only have another program
// compiled: a cache is addressed by the contents of programs.
type Recipe struct {
	// Key is a hash of the other fields.
	Key     string         `json:"key"`
	Program *ProgramRecipe `json:"program,omitempty"`
	Launch  *LaunchRecipe  `json:"launch,omitempty"`
	// Binaries is the key of a program's recipe whose binaries are needed: only then does PoCL
	// compile the kernels that no launch has needed.
	Binaries string `json:"binaries,omitempty"`
}

// ProgramRecipe is a program's source with the options and header files of its build.
type ProgramRecipe struct {
	Source   []byte  `json:"source"`
	Options  *string `json:"options,omitempty"`
	Includes []byte  `json:"includes,omitempty"`
}

// LaunchRecipe is a launch of a kernel. Drivers such as PoCL compile a kernel for the sizes of its
// launch.
type LaunchRecipe struct {
	// Program is the key of the program's recipe, which precedes this one.
	Program string      `json:"program"`
	Kernel  string      `json:"kernel"`
	Args    []ArgRecipe `json:"args"`
	Offset  []uint64    `json:"offset,omitempty"`
	Global  []uint64    `json:"global"`
	Local   []uint64    `json:"local,omitempty"`
}

// ArgRecipe is an argument of a kernel: its form and its size in bytes.
type ArgRecipe struct {
	Form uint32 `json:"form"`
	Size uint64 `json:"size"`
}

// Bounds of recipes.
const (
	// maxRecipes bounds the recipes of one session in bytes.
	maxRecipes = 32 << 20
	// maxRecipe bounds one recipe, and so the source of a program that is compiled again.
	maxRecipe = 8 << 20
	// maxKeptSources bounds the sources that a worker keeps until they are built.
	maxKeptSources = 32 << 20
	// maxRecipeArgs bounds the arguments of a kernel, maxArgSize the size of each.
	maxRecipeArgs = 256
	maxArgSize    = 64 << 10
)

// ReadRecipes reads recipes until end of file, or until they exceed maxRecipes.
func ReadRecipes(r io.Reader) ([]Recipe, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxRecipes))
	lines.Buffer(make([]byte, 0, 64<<10), maxRecipe*3/2)
	var all []Recipe
	for lines.Scan() {
		var recipe Recipe
		if err := json.Unmarshal(lines.Bytes(), &recipe); err != nil {
			return all, fmt.Errorf("recipe: %w", err)
		}
		if err := recipe.validate(); err != nil {
			return all, err
		}
		all = append(all, recipe)
	}
	return all, lines.Err()
}

func (r *Recipe) validate() error {
	kinds := 0
	for _, is := range []bool{r.Program != nil, r.Launch != nil, r.Binaries != ""} {
		if is {
			kinds++
		}
	}
	switch {
	case len(r.Key) != keyLength || kinds != 1:
		return errors.New("recipe: neither a program nor a launch nor binaries")
	case r.Launch == nil:
		return nil
	}
	l := r.Launch
	if len(l.Global) == 0 || len(l.Global) > 3 || l.Local != nil && len(l.Local) != len(l.Global) ||
		l.Offset != nil && len(l.Offset) != len(l.Global) || len(l.Args) > maxRecipeArgs {
		return errors.New("recipe: a launch of impossible sizes")
	}
	for _, a := range l.Args {
		if a.Form > formQueue || a.Size > maxArgSize {
			return errors.New("recipe: an impossible argument")
		}
	}
	return nil
}

// keyLength is the length of a key in characters.
const keyLength = 32

// keyOf hashes the parts and their lengths.
func keyOf(parts ...[]byte) string {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:keyLength/2])
}
