package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

// A codecState encodes and decodes the messages of one call.
type codecState struct {
	codec      encoding.CodecV2
	compressor encoding.Compressor // nil for none
	encoding   string
	proto      bool // codec is grpc-go's for protocol buffers
	passValues bool // the transport carries values
	lender     lender
	server     bool
	maxSend    int
	maxReceive int
}

// A lender lends memory from which a transport sends without a copy. The connections and streams of
// package shared are lenders.
type lender interface {
	Lend(size int) (*call.Message, error)
}

// pack turns v into a message for the transport.
func (f *codecState) pack(v any) (*call.Message, error) {
	if f.proto {
		if m := protoOf(v); m != nil {
			return f.packProto(m)
		}
	}
	if v == nil {
		return &call.Message{Data: []byte{}}, nil
	}
	data, err := f.codec.Marshal(v)
	if err != nil {
		return nil, marshalError(err)
	}
	return f.finish(data)
}

// packProto leaves m as it is if the transport carries values. Such a transport clones the messages
// that it keeps.
func (f *codecState) packProto(m proto.Message) (*call.Message, error) {
	size := proto.Size(m)
	if f.compressor == nil || f.passValues {
		if err := f.checkSend(size); err != nil {
			return nil, err
		}
	}
	if f.passValues {
		return &call.Message{Value: m, Encode: encodeProto}, nil
	}
	if f.lender != nil && f.compressor == nil && size > 0 {
		return f.marshalLent(m, size)
	}
	return f.marshal(m, size)
}

// marshalLent marshals m into memory from which the transport's peer will read it.
func (f *codecState) marshalLent(m proto.Message, size int) (*call.Message, error) {
	lent, err := f.lender.Lend(size)
	if err != nil {
		return nil, toStatus(err)
	}
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(lent.Data[:0:size], m)
	if err == nil && (len(data) != size || &data[0] != &lent.Data[0]) {
		err = errChanging
	}
	if err != nil {
		lent.Free()
		return nil, marshalError(err)
	}
	lent.Data = data
	return lent, nil
}

var errChanging = errors.New("the message was changed while it was sent")

func (f *codecState) marshal(m proto.Message, size int) (*call.Message, error) {
	write := proto.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(size) {
		data, err := write.MarshalAppend(make([]byte, 0, size), m)
		if err != nil {
			return nil, marshalError(err)
		}
		return f.finish(mem.BufferSlice{mem.SliceBuffer(data)})
	}
	buffer := mem.DefaultBufferPool().Get(size)
	if _, err := write.MarshalAppend((*buffer)[:0], m); err != nil {
		mem.DefaultBufferPool().Put(buffer)
		return nil, marshalError(err)
	}
	return f.finish(mem.BufferSlice{mem.NewBuffer(buffer, mem.DefaultBufferPool())})
}

func marshalError(err error) error {
	return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
}

// finish compresses the output of a codec, and checks its size.
func (f *codecState) finish(data mem.BufferSlice) (*call.Message, error) {
	compressed := f.compressor != nil && data.Len() > 0
	if compressed {
		smaller, err := f.compress(data)
		data.Free()
		if err != nil {
			return nil, err
		}
		data = smaller
	}
	if err := f.checkSend(data.Len()); err != nil {
		data.Free()
		return nil, err
	}
	return messageOf(data, compressed), nil
}

func messageOf(data mem.BufferSlice, compressed bool) *call.Message {
	if len(data) == 1 {
		return &call.Message{Data: nonNil(data[0].ReadOnlyData()), Compressed: compressed, Release: data[0].Free}
	}
	contiguous := data.Materialize()
	data.Free()
	return &call.Message{Data: nonNil(contiguous), Compressed: compressed}
}

// nonNil returns an empty slice for nil, so that an empty message does not look like none.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (f *codecState) checkSend(size int) error {
	if size > f.maxSend {
		return status.Errorf(codes.ResourceExhausted, "trying to send message larger than max (%d vs. %d)", size, f.maxSend)
	}
	return nil
}

func (f *codecState) checkReceive(size int) error {
	if size > f.maxReceive {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", size, f.maxReceive)
	}
	return nil
}

func (f *codecState) compress(data mem.BufferSlice) (mem.BufferSlice, error) {
	var out mem.BufferSlice
	err := writeAll(f.compressor, mem.NewWriter(&out, mem.DefaultBufferPool()), data)
	if err != nil {
		out.Free()
		return nil, status.Errorf(codes.Internal, "grpc: error while compressing: %v", err)
	}
	return out, nil
}

func writeAll(c encoding.Compressor, to io.Writer, data mem.BufferSlice) error {
	w, err := c.Compress(to)
	if err != nil {
		return err
	}
	for _, part := range data {
		if _, err := w.Write(part.ReadOnlyData()); err != nil {
			return err
		}
	}
	return w.Close()
}

// unpack decodes m into v and frees m.
func (f *codecState) unpack(m *call.Message, v any) error {
	defer m.Free()
	if m.Value != nil && !m.Compressed {
		if done, err := f.moveInto(m.Value, v); done {
			return err
		}
	}
	data, err := m.Bytes()
	if err != nil {
		return marshalError(err)
	}
	if err := f.checkReceive(len(data)); err != nil {
		return err
	}
	if m.Compressed {
		if data, err = f.decompress(data); err != nil {
			return err
		}
	}
	return f.unmarshal(data, v)
}

func (f *codecState) unmarshal(data []byte, v any) error {
	err := f.unmarshalCodec(data, v)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// unmarshalCodec copies data for codecs that this package does not know: the sender may still
// be able to write to the bytes. The parser of protocol buffers reads each length once and
// retains nothing, so that it needs no copy.
func (f *codecState) unmarshalCodec(data []byte, v any) error {
	if f.proto {
		if m := protoOf(v); m != nil {
			return proto.UnmarshalOptions{NoLazyDecoding: true}.Unmarshal(data, m)
		}
		return fmt.Errorf("failed to unmarshal, message is %T, want proto.Message", v)
	}
	return f.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(slices.Clone(data))}, v)
}

func (f *codecState) decompress(data []byte) ([]byte, error) {
	if err := f.checkEncoding(); err != nil {
		return nil, err
	}
	r, err := f.compressor.Decompress(bytes.NewReader(data))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to decompress the message: %v", err)
	}
	if c, ok := r.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	return f.readAll(r)
}

// readAll reads one byte more than the limit at most: a small message may decompress to a very
// large one.
func (f *codecState) readAll(r io.Reader) ([]byte, error) {
	if limit := int64(f.maxReceive); limit < math.MaxInt64 {
		r = io.LimitReader(r, limit+1)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: failed to read decompressed data: %v", err)
	}
	if len(data) > f.maxReceive {
		return nil, status.Errorf(codes.ResourceExhausted, "grpc: received message after decompression larger than max %d", f.maxReceive)
	}
	return data, nil
}

// checkEncoding returns the reason that a compressed message can't be read, or nil.
func (f *codecState) checkEncoding() error {
	switch {
	case f.encoding == "" || f.encoding == encoding.Identity:
		return status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	case f.compressor != nil:
		return nil
	case f.server:
		return status.Errorf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", f.encoding)
	}
	return status.Errorf(codes.Internal, "grpc: Decompressor is not installed for grpc-encoding %q", f.encoding)
}
