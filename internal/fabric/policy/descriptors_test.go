package policy

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// TestTakenName uses a service whose file has the name of one that grpc links into
// this program, and imports another file.
func TestTakenName(t *testing.T) {
	const text = `
file {
  name: "common.proto" package: "mine" syntax: "proto3"
  message_type { name: "Place" field { name: "country" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "country" } }
}
file {
  name: "google/rpc/status.proto" package: "mine" syntax: "proto3" dependency: "common.proto"
  message_type { name: "Thing" field { name: "place" number: 1 type: TYPE_MESSAGE type_name: ".mine.Place" label: LABEL_OPTIONAL json_name: "place" } }
  service { name: "Things" method { name: "Do" input_type: ".mine.Thing" output_type: ".mine.Thing" } }
}`
	if _, err := protoregistry.GlobalFiles.FindFileByPath("google/rpc/status.proto"); err != nil {
		t.Fatal("the test needs a name that is taken:", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := prototext.Unmarshal([]byte(text), &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("f", []byte(`policies: [{name: a, when: request.place.country != "CH", access: {default: deny, rules: []}}]`), files)
	if err != nil {
		t.Fatal(err)
	}
	for country, want := range map[string]codes.Code{"CH": codes.OK, "DE": codes.PermissionDenied} {
		payload := append([]byte{10, 4, 10, 2}, country...)
		if _, err := (&visit{method: "/mine.Things/Do", payload: payload}).run(s); code(err) != want {
			t.Errorf("%s: got %v, want %v", country, err, want)
		}
	}
}
