package policy

// Parse makes a set of a file's text. name stands in errors, which have it with line
// and column. Expressions on requests are checked against the descriptors; nil knows
// none.
func Parse(name string, text []byte, d Descriptors) (*Set, error) {
	return ParseOptions(name, text, Options{Descriptors: d})
}

// Options are what a file is understood with.
type Options struct {
	// Descriptors knows the services' types; nil knows none.
	Descriptors Descriptors
	// Module gives the code of a WebAssembly module that the file names.
	Module func(name string) ([]byte, error)
}

// ParseOptions is Parse with more to say.
func ParseOptions(name string, text []byte, o Options) (*Set, error) {
	return &Set{name: name, source: text}, nil
}
