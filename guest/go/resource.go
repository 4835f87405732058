package guest

// A Resource is a resource of the app that a function uses by name: another function, a bucket, an
// arena, a secret, a device. The app's manifest lists the imports of each function. A resource is
// imported when it is first used, and dropped at the end of the call or by Close.
type Resource struct {
	name   string
	handle int32
}

// Import imports a resource now. Its name begins with its kind: "function:price",
// "function:shop/price" for a function of another app, "bucket:seats", "arena:photos",
// "secret:token", "device:gpu", "outgoing:api.example.com". The error names the line missing in the
// manifest.
func Import(name string) (*Resource, error) {
	r := &Resource{name: name}
	_, err := r.open()
	return r, err
}

// Name returns the resource's name with its kind.
func (r *Resource) Name() string { return r.name }

// Close drops the resource. Using it again imports it again.
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

// Function returns another function of this app, or "APP/FUNCTION".
func Function(name string) *Callee { return &Callee{Resource{name: "function:" + name}} }

// Outgoing returns the client of requests to a host, "NAME" or "NAME:PORT", which the manifest has
// to list in outgoing and in the function's imports. Requests and responses are HTTP/1.1 messages,
// a request with a URI as its target. Package web has a Transport over it.
func Outgoing(host string) *Callee { return &Callee{Resource{name: "outgoing:" + host}} }

// Call calls the function with a request. If the function fails, the error has the text of
// its error.
func (c *Callee) Call(request []byte) ([]byte, error) {
	handle, err := c.open()
	if err != nil {
		return nil, err
	}
	return hostCall(handle, request)
}

// A Region is a named arena, which other functions may import, too.
type Region struct{ Resource }

// Arena returns the app's arena of that name.
func Arena(name string) *Region { return &Region{Resource{name: "arena:" + name}} }

// Bytes returns the arena's memory. With `share: true` in the manifest, other functions see the
// writes and must synchronize with them.
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

// Meta returns the value of a metadata key of this call: "method", a header of the
// request, a parameter of the route's path, "execution", "ws.id" and others. ok is false
// if the key does not exist.
func Meta(name string) (value string, ok bool) { return hostMeta(name) }
