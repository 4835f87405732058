package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // decodes images as inputs
	_ "image/png"  // decodes images as inputs
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/npy"
	"github.com/outboard-run/outboard/internal/model/oip"
)

type inferOptions struct {
	inputs  []string
	outputs []string
	version string
	output  string
	timeout time.Duration
}

func newInferCommand(env *Env) *cobra.Command {
	var opts inferOptions
	cmd := &cobra.Command{
		Use:   "infer NAME",
		Short: "Compute the outputs of a model for tensors, pictures or numbers",
		Long: `Compute the outputs of a model. Each input is given as NAME=VALUE with

  @FILE.npy    an array of NumPy, of the input's data type
  @FILE.png    a picture (or .jpg), scaled to the input's shape, its values from 0 to 1
  JSON         an array, such as [[1, 2, 3]]

A model with one input needs no NAME=. The result is printed as JSON; -o FILE.npy writes the
first output, or the one that --output names, as an array of NumPy.`,
		Example: `  outboard infer mlp -i input=@digit.npy
  outboard infer digits -i input=@digit.png
  outboard infer mlp -i '[[0.1, 0.2, 0.3, 0.4]]' -o result.npy`,
		Args:              oneArg("name one model; `outboard models` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runInfer(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: env.firstArg(modelWords),
	}
	cmd.Flags().StringArrayVarP(&opts.inputs, "input", "i", nil, "`NAME=VALUE` of an input: @FILE.npy, @FILE.png or JSON")
	cmd.Flags().StringSliceVar(&opts.outputs, "output", nil, "`NAME` of an output to compute (default all)")
	cmd.Flags().StringVar(&opts.version, "version", "", "`NUMBER` of a version (default the one in force)")
	cmd.Flags().StringVarP(&opts.output, "write", "o", "json", "json, or `FILE.npy` for one output")
	cmd.Flags().DurationVar(&opts.timeout, "timeout", 0, "how long it may take (default as the model's configuration says)")
	complete(cmd, "write", completeWords("json"))
	complete(cmd, "version", completeWords())
	complete(cmd, "output", completeWords())
	return cmd
}

func runInfer(ctx context.Context, env *Env, opts inferOptions, name string) error {
	if opts.output != "json" && !strings.HasSuffix(opts.output, ".npy") {
		return usage("-o %s: want json or a file that ends in .npy", opts.output)
	}
	c := env.client()
	stop := env.reportIfSlow("having a node load the model %s", name)
	defer stop()
	inputs, err := describeInputs(ctx, c, name, opts.version)
	if err != nil {
		return err
	}
	tensors, err := readInputs(opts.inputs, inputs)
	if err != nil {
		return err
	}
	outputs, err := infer(ctx, c, name, &opts, tensors)
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return printOutputs(env, outputs)
	}
	return writeOutput(opts.output, outputs)
}

// writeOutput writes the only output to a file of NumPy's format. A file that is already there stays
// if the output can't be written.
func writeOutput(path string, outputs []model.Tensor) error {
	if len(outputs) != 1 {
		var names []string
		for i := range outputs {
			names = append(names, outputs[i].Name)
		}
		return usage("-o %s: a file has one output, and there are %s: choose one with --output", path, strings.Join(names, ", "))
	}
	if err := npy.Write(io.Discard, &outputs[0]); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(npy.Write(f, &outputs[0]), f.Close())
}

func modelPath(name, version string) string {
	path := "/v2/models/" + url.PathEscape(name)
	if version != "" {
		path += "/versions/" + url.PathEscape(version)
	}
	return path
}

// describeInputs returns the inputs of a model in the protocol's description.
func describeInputs(ctx context.Context, c *client.Client, name, version string) ([]model.Signature, error) {
	body, _, err := requestModels(ctx, c, http.MethodGet, modelPath(name, version), nil, nil)
	if err != nil {
		return nil, err
	}
	var m struct {
		Inputs []struct {
			Name  string         `json:"name"`
			Type  model.DataType `json:"datatype"`
			Shape []int64        `json:"shape"`
		} `json:"inputs"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	var list []model.Signature
	for _, in := range m.Inputs {
		list = append(list, model.Signature(in))
	}
	return list, nil
}

// maxResult bounds the response of a model in bytes.
const maxResult = 1 << 30

// requestModels sends a request of the protocol and returns the body and the header of the
// response.
func requestModels(ctx context.Context, c *client.Client, method, path string, header http.Header, body []byte) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://node"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(r.Header, header)
	response, err := c.OpenModels(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResult))
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, nil, oip.ErrorOf(response.StatusCode, text)
	}
	return text, response.Header, nil
}

// infer sends the inputs as binary tensors and requests binary outputs.
func infer(ctx context.Context, c *client.Client, name string, opts *inferOptions, inputs []model.Tensor) ([]model.Tensor, error) {
	body, header, err := oip.EncodeRequest(inputs, opts.outputs, opts.timeout)
	if err != nil {
		return nil, err
	}
	text, reply, err := requestModels(ctx, c, http.MethodPost, modelPath(name, opts.version)+"/infer", header, body)
	if err != nil {
		return nil, err
	}
	outputs, err := oip.DecodeResponse(text, reply)
	if err == nil && len(outputs) == 0 {
		err = outboard.Errorf(outboard.Protocol, "infer", "the model returned no output")
	}
	return outputs, err
}

// printOutputs prints outputs in the protocol's JSON.
func printOutputs(env *Env, outputs []model.Tensor) error {
	text, err := oip.MarshalTensors(outputs)
	if err != nil {
		return fmt.Errorf("%w (-o FILE.npy)", err)
	}
	_, err = fmt.Fprintf(jsonWriter{env.Stdout}, "%s\n", text)
	return err
}

// readInputs parses the values of the command line for the inputs of a model.
func readInputs(values []string, inputs []model.Signature) ([]model.Tensor, error) {
	var list []model.Tensor
	for _, text := range values {
		name, value, ok := strings.Cut(text, "=")
		if !ok || strings.HasPrefix(text, "@") || strings.HasPrefix(text, "[") {
			if len(inputs) == 0 {
				return nil, usage("the model takes no tensors: `outboard chat` talks with models for text")
			}
			if len(inputs) != 1 {
				return nil, usage("-i %s: the model has %d inputs: write NAME=VALUE", text, len(inputs))
			}
			name, value = inputs[0].Name, text
		}
		at := slices.IndexFunc(inputs, func(s model.Signature) bool { return s.Name == name })
		if at < 0 {
			return nil, usage("-i %s: the model has no input %q: it has %s", text, name, signatureNames(inputs))
		}
		t, err := readTensor(value, &inputs[at])
		if err != nil {
			return nil, outboard.Errorf(outboard.Invalid, "input "+name, "%w", err)
		}
		t.Name = name
		list = append(list, t)
	}
	return list, nil
}

func signatureNames(list []model.Signature) string {
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	return strings.Join(names, ", ")
}

func readTensor(value string, want *model.Signature) (model.Tensor, error) {
	path, isFile := strings.CutPrefix(value, "@")
	if !isFile {
		return oip.ParseTensor([]byte(value), want)
	}
	f, err := os.Open(path)
	if err != nil {
		return model.Tensor{}, err
	}
	defer f.Close()
	switch strings.ToLower(filepath.Ext(path)) {
	case ".npy":
		return npy.Read(f, maxResult)
	case ".json":
		text, err := io.ReadAll(io.LimitReader(f, maxResult))
		if err != nil {
			return model.Tensor{}, err
		}
		return oip.ParseTensor(text, want)
	case ".png", ".jpg", ".jpeg":
		return readPicture(f, want)
	}
	return model.Tensor{}, fmt.Errorf("%s: want a file that ends in .npy, .json, .png or .jpg", path)
}

// maxPixels bounds an image.
const maxPixels = 64 << 20

// readPicture converts an image to a tensor of values from 0 to 1 in the shape of an input: the
// last dimensions are [height, width], [channels, height, width] or [height, width, channels] with
// 1 or 3 channels; an input of one dimension takes a square image. Variable dimensions become 1, or
// the size of the image.
func readPicture(r io.Reader, want *model.Signature) (model.Tensor, error) {
	if want.Type != model.FP32 {
		return model.Tensor{}, fmt.Errorf("it has the data type %v: pictures are read as FP32", want.Type)
	}
	content, err := io.ReadAll(io.LimitReader(r, maxResult))
	if err != nil {
		return model.Tensor{}, err
	}
	config, _, err := image.DecodeConfig(bytes.NewReader(content))
	if err != nil {
		return model.Tensor{}, err
	}
	if config.Width*config.Height > maxPixels {
		return model.Tensor{}, fmt.Errorf("a picture of %d x %d: at most %d pixels are read", config.Width, config.Height, maxPixels)
	}
	picture, _, err := image.Decode(bytes.NewReader(content))
	if err != nil {
		return model.Tensor{}, err
	}
	return pictureTensor(picture, want)
}

// pictureTensor scales an image to an input's shape.
func pictureTensor(picture image.Image, want *model.Signature) (model.Tensor, error) {
	shape := slices.Clone(want.Shape)
	if len(shape) > 0 && shape[0] < 0 {
		shape[0] = 1 // a batch of one
	}
	layout, err := pictureLayout(shape, picture.Bounds())
	if err != nil {
		return model.Tensor{}, err
	}
	t := model.Tensor{Type: model.FP32, Shape: shape}
	at := func(channel, y, x int) float32 {
		b := picture.Bounds()
		r, g, bl, _ := picture.At(b.Min.X+x*b.Dx()/layout.width, b.Min.Y+y*b.Dy()/layout.height).RGBA()
		if layout.channels == 1 {
			return (0.299*float32(r) + 0.587*float32(g) + 0.114*float32(bl)) / math.MaxUint16
		}
		return float32([]uint32{r, g, bl}[channel]) / math.MaxUint16
	}
	n, ok := model.Elements(shape)
	if !ok || n != layout.channels*layout.height*layout.width {
		return t, fmt.Errorf("a picture does not fit the shape %v", want.Shape)
	}
	for i := range n {
		channel, pixel := i/(layout.height*layout.width), i%(layout.height*layout.width)
		if layout.last {
			channel, pixel = i%layout.channels, i/layout.channels
		}
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(at(channel, pixel/layout.width, pixel%layout.width)))
	}
	return t, nil
}

// A pixelLayout is the layout of pixels in a tensor; last says that the channels of a pixel are
// adjacent.
type pixelLayout struct {
	channels, height, width int
	last                    bool
}

func pictureLayout(shape []int64, b image.Rectangle) (pixelLayout, error) {
	inner := shape
	for len(inner) > 1 && inner[0] == 1 && len(inner) > 3 || len(inner) == 2 && inner[0] == 1 {
		inner = inner[1:]
	}
	for d, size := range inner {
		if size < 0 {
			inner[d] = int64(b.Dy())
			if d == len(inner)-1 {
				inner[d] = int64(b.Dx())
			}
		}
	}
	isChannels := func(d int64) bool { return d == 1 || d == 3 }
	switch {
	case len(inner) == 1:
		side := int(math.Sqrt(float64(inner[0])))
		return pixelLayout{channels: 1, height: side, width: side}, nil
	case len(inner) == 2:
		return pixelLayout{channels: 1, height: int(inner[0]), width: int(inner[1])}, nil
	case len(inner) == 3 && isChannels(inner[0]):
		return pixelLayout{channels: int(inner[0]), height: int(inner[1]), width: int(inner[2])}, nil
	case len(inner) == 3 && isChannels(inner[2]):
		return pixelLayout{channels: int(inner[2]), height: int(inner[0]), width: int(inner[1]), last: true}, nil
	}
	return pixelLayout{}, fmt.Errorf("the shape %v is none of a picture", shape)
}
