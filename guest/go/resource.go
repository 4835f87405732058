package guest

// A Resource is something of the app's that a function uses by name: another
// function, a bucket, an arena, a secret, a device. The app's manifest says who may import
// what. It is imported when it is used for the first time, and gone with the call or
// with Close.
type Resource struct {
	name   string
	handle int32
}

// Import imports a resource now. Its name has its kind before it: "function:price",
// "function:shop/price" for one of another app, "bucket:seats", "arena:photos",
// "secret:token", "device:gpu". The error says what the manifest lacks.
func Import(name string) (*Resource, error) {
	r := &Resource{name: name}
	_, err := r.open()
	return r, err
}

// Name returns the name with its kind.
func (r *Resource) Name() string { return r.name }

// Close gives the resource back. It is imported again when it is used again.
func (r *Resource) Close() {
	if r.handle != 0 {
		hostDrop(r.handle)
	}
	r.handle = 0
}

func (r *Resource) open() (int32, error) {
	if r.handle != 0 {
		return r.handle, nil
	}
	handle, err := hostImport(r.name)
	r.handle = handle
	return handle, err
}

// A Callee is another function.
type Callee struct{ Resource }

// Function names another function of this app, or "APP/FUNCTION".
func Function(name string) *Callee { return &Callee{Resource{name: "function:" + name}} }

// Call has the function answer a request. When it fails, its error's text is that of
// the error here.
func (c *Callee) Call(request []byte) ([]byte, error) {
	handle, err := c.open()
	if err != nil {
		return nil, err
	}
	return hostCall(handle, request)
}

// A Region is an arena with a name, which other functions may see, too.
type Region struct{ Resource }

// Arena names an arena of the app.
func Arena(name string) *Region { return &Region{Resource{name: "arena:" + name}} }

// Bytes returns the arena's memory. Who imports it as shared writes to what others
// read; it is up to them to agree on when.
func (r *Region) Bytes() ([]byte, error) {
	handle, err := r.open()
	if err != nil {
		return nil, err
	}
	return hostArena(handle)
}

// Secret returns a secret of the app.
func Secret(name string) ([]byte, error) {
	r, err := Import("secret:" + name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return hostSecret(r.handle)
}

// Meta returns what is known about this call under a name: "method", a header of the
// request, a parameter of the route's path, "execution", "ws.id" and others. ok is
// false if there is none.
func Meta(name string) (value string, ok bool) { return hostMeta(name) }
