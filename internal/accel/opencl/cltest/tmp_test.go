package cltest
import ("testing";"os/exec")
func TestBreak(t *testing.T){ Build(t).Compare(t, Options{Programs: []string{"memory","failure"}, Through: func(c *exec.Cmd){ (&Driver{vendors: oclgrindLibrary}).choose(c)}, Limit: 15e9}) }
func TestWrap(t *testing.T){ Build(t).Compare(t, Options{Programs: []string{"event"}, Through: func(c *exec.Cmd){ c.Args = append([]string{"/usr/bin/env","A=b", c.Path}, c.Args[1:]...); c.Path="/usr/bin/env"}}) }
