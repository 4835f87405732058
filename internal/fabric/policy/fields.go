package policy

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/grpc/metadata"
)

// fields presents metadata as a CEL map from each key to its first value. The metadata is copied
// only when an expression needs the whole map.
type fields struct{ md metadata.MD }

var _ traits.Mapper = fields{}

// Find implements traits.Mapper.
func (f fields) Find(key ref.Val) (ref.Val, bool) {
	k, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	values := f.md[string(k)]
	if len(values) == 0 {
		return nil, false
	}
	return types.String(values[0]), true
}

// Get implements traits.Indexer.
func (f fields) Get(key ref.Val) ref.Val {
	v, ok := f.Find(key)
	switch {
	case ok:
		return v
	case v != nil:
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (f fields) Contains(key ref.Val) ref.Val {
	v, ok := f.Find(key)
	if !ok && v != nil {
		return v
	}
	return types.Bool(ok)
}

// Size implements traits.Sizer.
func (f fields) Size() ref.Val { return types.Int(len(f.md)) }

// Iterator implements traits.Iterable.
func (f fields) Iterator() traits.Iterator { return f.all().Iterator() }

// Equal implements ref.Val.
func (f fields) Equal(other ref.Val) ref.Val { return f.all().Equal(other) }

// ConvertToNative implements ref.Val.
func (f fields) ConvertToNative(t reflect.Type) (any, error) { return f.all().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (f fields) ConvertToType(t ref.Type) ref.Val { return f.all().ConvertToType(t) }

// Type implements ref.Val.
func (f fields) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (f fields) Value() any { return f.all().Value() }

func (f fields) all() traits.Mapper {
	all := make(map[string]string, len(f.md))
	for k, v := range f.md {
		if len(v) > 0 {
			all[k] = v[0]
		}
	}
	return types.NewStringStringMap(types.DefaultTypeAdapter, all)
}
