package gen

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A TableEntry is one function of the loader's dispatch table.
type TableEntry struct{ Name, Result string }

// Headers are the installed C headers of the API.
type Headers struct {
	// Dir is the folder of the headers, such as /usr/include.
	Dir string
	// text is the text of all headers, functions that of the first one, which declares the API's
	// functions.
	text, functions string
	// Table is the loader's dispatch table, in order.
	Table []TableEntry
	// Constants are the values of the macros that the description names.
	Constants map[string]int64
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	prototype = regexp.MustCompile(`(?s)extern\s+CL_API_ENTRY\s+([\w\s\*]+?)\s*CL_API_CALL\s+(\w+)\s*\((.*?)\)\s*CL_\w+;`)
	lastWord  = regexp.MustCompile(`(\w+)\s*(\[\])?$`)
	callback  = regexp.MustCompile(`\(\s*CL_CALLBACK\s*\*\s*(\w+)\s*\)`)
)

// ReadHeaders reads the description's headers and checks the description against them: both must
// have the same functions with the same parameter names, and every C type must be as the compiler
// reports it.
func (a *API) ReadHeaders(dir string) (*Headers, error) {
	h := &Headers{Dir: dir}
	for _, name := range a.Headers {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("read headers: %w", err)
		}
		text := comments.ReplaceAllString(string(raw), "")
		if h.text += text; h.functions == "" {
			h.functions = text
		}
	}
	if err := a.checkNames(h); err != nil {
		return nil, err
	}
	if err := a.readTable(h); err != nil {
		return nil, err
	}
	if err := a.checkTypes(dir); err != nil {
		return nil, err
	}
	return h, a.readConstants(h)
}

func (a *API) checkNames(h *Headers) error {
	found := map[string]bool{}
	for _, m := range prototype.FindAllStringSubmatch(h.functions, -1) {
		name := m[2]
		found[name] = true
		c := a.call(name)
		if c == nil {
			return fmt.Errorf("%s is in the headers but not described", name)
		}
		if err := c.checkParams(splitParams(m[3])); err != nil {
			return err
		}
	}
	for _, c := range a.Calls {
		if !found[c.Name] {
			return fmt.Errorf("line %d: %s is described but not in the headers", c.Line, c.Name)
		}
	}
	return nil
}

func (c *Call) checkParams(want []string) error {
	var have []string
	for _, p := range c.Params {
		if !p.Extra {
			have = append(have, p.Name)
		}
	}
	if strings.Join(have, ",") != strings.Join(want, ",") {
		return fmt.Errorf("line %d: %s has the parameters (%s), in the headers (%s)",
			c.Line, c.Name, strings.Join(have, ", "), strings.Join(want, ", "))
	}
	return nil
}

// splitParams returns the names of a prototype's parameters.
func splitParams(text string) []string {
	var names []string
	depth, start := 0, 0
	for i, r := range text + "," {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			if name := paramName(strings.TrimSpace(text[start:i])); name != "" {
				names = append(names, name)
			}
			start = i + 1
		}
	}
	return names
}

func paramName(param string) string {
	if param == "void" {
		return ""
	}
	if m := callback.FindStringSubmatch(param); m != nil {
		return m[1]
	}
	if m := lastWord.FindStringSubmatch(param); m != nil {
		return m[1]
	}
	return ""
}

var (
	tableEntry  = regexp.MustCompile(`cl_api_(\w+)\s+(\w+);`)
	entryResult = regexp.MustCompile(`typedef\s+([\w\s\*]+?)\s*\(\s*CL_API_CALL\s*\*\s*cl_api_(\w+)\s*\)`)
)

func (a *API) readTable(h *Headers) error {
	_, body, ok := strings.Cut(h.text, "struct "+a.TableStruct+" {")
	if !ok {
		return fmt.Errorf("%s has no struct %s", a.TableHeader, a.TableStruct)
	}
	body, _, _ = strings.Cut(body, "}")
	// The tables of other systems stand between preprocessor conditions.
	body = regexp.MustCompile(`(?s)#if(def|\s+defined\()?\s*\(?_WIN32\)?.*?#else(.*?)#endif`).ReplaceAllString(body, "$2")
	results := map[string]string{}
	for _, m := range entryResult.FindAllStringSubmatch(h.text, -1) {
		results[m[2]] = strings.TrimSpace(m[1])
	}
	for _, m := range tableEntry.FindAllStringSubmatch(body, -1) {
		h.Table = append(h.Table, TableEntry{Name: m[2], Result: results[m[2]]})
	}
	return nil
}

// checkTypes has the C compiler compare the description's prototypes and scalar sizes with the
// headers'.
func (a *API) checkTypes(dir string) error {
	s := &source{}
	s.p("#define CL_TARGET_OPENCL_VERSION 300\n#define CL_USE_DEPRECATED_OPENCL_1_0_APIS\n#define CL_USE_DEPRECATED_OPENCL_1_1_APIS")
	s.p("#define CL_USE_DEPRECATED_OPENCL_1_2_APIS\n#define CL_USE_DEPRECATED_OPENCL_2_0_APIS\n#define CL_USE_DEPRECATED_OPENCL_2_1_APIS\n#define CL_USE_DEPRECATED_OPENCL_2_2_APIS")
	for _, name := range a.Headers {
		s.p("#include <%s>", name)
	}
	bits := map[string]string{"u8": "1", "i32": "4", "u32": "4", "i64": "8", "u64": "8"}
	for ctype, scalar := range a.Scalars {
		s.p("_Static_assert(sizeof(%s) == %s, \"%s is not %s\");", ctype, bits[scalar], ctype, scalar)
		if ctype != "char" {
			s.p("_Static_assert(((%s)-1 < 0) == %d, \"sign of %s\");", ctype, map[bool]int{true: 1, false: 0}[scalar[0] == 'i'], ctype)
		}
	}
	for _, c := range a.Calls {
		var types []string
		for _, p := range c.Params {
			switch {
			case p.Extra:
			case p.Treatment == Callback:
				types = append(types, "") // compared by name only
			default:
				types = append(types, p.CType)
			}
		}
		if strings.Contains(strings.Join(types, ",")+",", ",,") || len(types) > 0 && types[0] == "" {
			continue
		}
		if len(types) == 0 {
			types = []string{"void"}
		}
		s.p("static %s (*check_%s)(%s) __attribute__((unused)) = %s;", c.Result, c.Name, strings.Join(types, ", "), c.Name)
	}
	cmd := exec.CommandContext(context.Background(), "cc", "-std=c11", "-x", "c", "-fsyntax-only", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-I", dir, "-")
	cmd.Stdin = s
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compare with the headers: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// readConstants reads the values of the macros from the preprocessed headers.
func (a *API) readConstants(h *Headers) error {
	names := map[string]bool{}
	for _, k := range a.Kinds {
		names[k.Error] = true
	}
	for _, f := range a.Facts {
		names[f.Param] = true
	}
	for _, c := range a.Calls {
		if c.Command != "" {
			names[c.Command] = true
		}
	}
	h.Constants = map[string]int64{}
	for name := range names {
		m := regexp.MustCompile(`(?m)^#define\s+` + name + `\s+\(?(-?\w+)\)?\s*$`).FindStringSubmatch(h.text)
		if m == nil {
			return fmt.Errorf("%s is no constant of the headers", name)
		}
		value, err := strconv.ParseInt(m[1], 0, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		h.Constants[name] = value
	}
	return nil
}
