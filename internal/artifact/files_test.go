package artifact

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

func TestFilesOfAManifest(t *testing.T) {
	layer := func(name, mediaType string, size int) string {
		return fmt.Sprintf(`{"mediaType":%q,"digest":"sha256:%064x","size":%d,"annotations":{"org.opencontainers.image.title":%q}}`, mediaType, size, size, name)
	}
	manifest := func(layers ...string) string { return `{"layers":[` + strings.Join(layers, ",") + `]}` }
	const raw = "application/octet-stream"
	got, err := readFiles([]byte(manifest(layer("weights/m.onnx", raw, 3), layer("../m.onnx.data", raw, 4))))
	if err != nil || len(got) != 2 || got[0].Name != "m.onnx" || got[1].Name != "m.onnx.data" || got[1].Size != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"no JSON":       "{",
		"no layer":      manifest(),
		"too many":      manifest(strings.Split(strings.Repeat(layer("a", raw, 1)+"|", maxFiles)+layer("a", raw, 1), "|")...),
		"no name":       manifest(layer("", raw, 1)),
		"the folder":    manifest(layer("..", raw, 1)),
		"the same name": manifest(layer("a/m.onnx", raw, 1), layer("b/m.onnx", raw, 2)),
		"an archive":    manifest(layer("m.onnx", "application/vnd.cncf.model.weight.v1.tar", 1)),
		"negative":      manifest(layer("m.onnx", raw, -1)),
		"no digest":     manifest(`{"mediaType":"` + raw + `","digest":"sha256:x","annotations":{"org.opencontainers.image.title":"m"}}`),
	} {
		if list, err := readFiles([]byte(text)); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}

func FuzzFilesOfAManifest(f *testing.F) {
	f.Add([]byte(`{"layers":[{"mediaType":"a","digest":"sha256:` + strings.Repeat("0", 64) + `","size":1,"annotations":{"org.opencontainers.image.title":"x/y"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := readFiles(text)
		for i := range list {
			if name := list[i].Name; err != nil || name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
				t.Errorf("%q, %v", name, err)
			}
		}
	})
}
