package calls

import (
	"testing"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestDeclared: names of a file and of its imports are found, and a name of another package without
// an index of all declarations: each call of a service that is not described searches for it.
func TestDeclared(t *testing.T) {
	file := testgrpc.File_grpc_testing_test_proto
	if d := declared(file, "grpc.testing.TestService"); d == nil || d.ParentFile() != file {
		t.Errorf("the service is %v", d)
	}
	if d := declared(file, "grpc.testing.Empty"); d == nil || d.ParentFile() != testgrpc.File_grpc_testing_empty_proto {
		t.Errorf("the message of an import is %v", d)
	}
	for _, name := range []string{"shop.None", "grpc.testing.None", "grpc"} {
		if d := declared(file, protoreflect.FullName(name)); d != nil {
			t.Errorf("%s is %v", name, d)
		}
	}
	if n := testing.AllocsPerRun(10, func() { declared(file, "shop.None") }); n > 5 {
		t.Errorf("%v allocations for a name of another package", n)
	}
}
