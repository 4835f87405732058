// Package cltest runs the same OpenCL programs over two ways to the same device and compares their
// output.
//
// The programs are C, in the folder c: each is a table of named cases that print lines which depend
// on the OpenCL implementation alone. So the local driver is the oracle: whatever it answers, right
// or odd, the other way must answer too. Each case also checks by itself what the specification
// requires.
//
// A test builds the programs once and compares:
//
//	cltest.Build(t).Compare(t, cltest.Options{Through: func(cmd *exec.Cmd) {
//		cmd.Args = append([]string{outboard, "run", "--", cmd.Path}, cmd.Args[1:]...)
//		cmd.Path = outboard
//	}})
//
// A case in which the local driver dies, hangs or is wrong is listed in the driver's table of odd
// cases with the reason; over the other way its own checks must hold.
package cltest
