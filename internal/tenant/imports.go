package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/pool/bucket"
)

// Import implements function.Resources: it finds what the manifest lets a function
// import.
func (d *deployed) Import(ctx context.Context, name string) (function.Resource, error) {
	i, ok := d.imports[name]
	if !ok {
		return nil, d.notAllowed(name)
	}
	h := d.version.home
	switch i.Kind {
	case manifest.ImportArena:
		a, err := h.arena(i.Name, d.version.spec.Arenas[i.Name])
		if err != nil {
			return nil, err
		}
		return &function.SharedArena{Arena: a, ReadOnly: !i.Share}, nil
	case manifest.ImportBucket:
		b, err := h.bucket(ctx, i.Name)
		if err != nil {
			return nil, err
		}
		return bucketResource{b, d.version.spec.BucketTTL[i.Name]}, nil
	case manifest.ImportSecret:
		text, ok := h.secret(i.Name)
		if !ok {
			return nil, outboard.Errorf(outboard.NotFound, "", "secret %s has no value: deploy the app again where it has one", i.Name)
		}
		return secretResource{text}, nil
	case manifest.ImportDevice:
		return h.device(ctx, d, i)
	case manifest.ImportFunction:
	}
	app, other := i.Function(d.version.spec.Name)
	return d.callee(ctx, app, other)
}

var importable = []manifest.Kind{manifest.ImportArena, manifest.ImportBucket, manifest.ImportFunction, manifest.ImportSecret, manifest.ImportDevice}

// notAllowed names the line of the manifest that would allow an import.
func (d *deployed) notAllowed(name string) error {
	kind, what, ok := strings.Cut(name, ":")
	if kind == "model" {
		return noModels(name)
	}
	if !ok || what == "" || !slices.Contains(importable, manifest.Kind(kind)) {
		return outboard.Errorf(outboard.Invalid, "", "want KIND:NAME, as in bucket:seats, where KIND is one of arena, bucket, device, function and secret")
	}
	return outboard.Errorf(outboard.Denied, "",
		"function %s may not: add \"- %s: %s\" to functions.%s.imports in the manifest of app %s",
		d.name, kind, what, d.name, d.version.spec.Name)
}

// callee returns another function of the tenant.
func (d *deployed) callee(ctx context.Context, app, name string) (function.Resource, error) {
	v := d.version
	if app != v.spec.Name {
		var err error
		if v, err = d.version.home.tenant.awaitCurrent(ctx, app); err != nil {
			return nil, err
		}
	}
	f := v.functions[name]
	if f == nil {
		return nil, outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", app, name)
	}
	return calleeResource{f}, nil
}

// A calleeResource is another function, as an import.
type calleeResource struct{ *deployed }

// Release implements function.Resource.
func (calleeResource) Release() {}

// Call implements function.Callee.
func (c calleeResource) Call(ctx context.Context, q function.Request) (function.Response, error) {
	q.Entry, q.Resources = c.spec.Entry, c.deployed
	return c.run(ctx, q)
}

// A bucketResource is a bucket, as an import.
type bucketResource struct {
	*bucket.Bucket
	ttl time.Duration // of what is put for no other time, 0 for ever
}

// Release implements function.Resource. The bucket stays open.
func (bucketResource) Release() {}

// Get implements function.Bucket.
func (b bucketResource) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	e, err := b.Bucket.Get(ctx, key)
	return e.Value, e.Revision, err
}

// Txn implements function.Bucket.
func (b bucketResource) Txn(ctx context.Context, encoded []byte) (int, error) {
	ops, err := bucket.DecodeTxn(encoded)
	if err != nil {
		return 0, fmt.Errorf("transaction: %w", err)
	}
	for i := range ops {
		switch ops[i].Kind {
		case bucket.Put, bucket.PutIfMissing, bucket.Add:
			ops[i].TTL = b.ttl
		case bucket.Delete, bucket.Missing, bucket.Revision, bucket.PutFor:
		}
	}
	return b.Bucket.Txn(ctx, ops)
}

// A secretResource is a secret, as an import.
type secretResource struct{ text []byte }

// Release implements function.Resource.
func (secretResource) Release() {}

// Bytes implements function.Secret.
func (s secretResource) Bytes() []byte { return s.text }
