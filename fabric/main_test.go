package fabric

import (
	"fmt"
	"io"
	"os"
	"testing"

	"google.golang.org/grpc/grpclog"
)

// TestMain makes the interoperability cases, which end the program when they
// fail, fail a test.
func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(failing{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	os.Exit(m.Run())
}

type failing struct{ grpclog.LoggerV2 }

func (failing) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (failing) Fatalln(args ...any)               { panic(fmt.Sprintln(args...)) }
func (failing) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// caught runs f; what f says before it would end the program fails the test.
func caught(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%v", p)
		}
	}()
	f()
}
