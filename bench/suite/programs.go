package suite

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// FFmpeg returns a program that filters a generated video on the device and prints the MD5 of the
// result's frames.
func FFmpeg(filter string, frames int) Program {
	return Program{
		Name: "ffmpeg " + filter,
		Args: []string{
			"ffmpeg", "-hide_banner", "-nostdin", "-v", "error", "-init_hw_device", "opencl=gpu:0.0", "-filter_hw_device", "gpu",
			"-f", "lavfi", "-i", "testsrc2=s=640x360:r=25", "-frames:v", fmt.Sprint(frames),
			"-vf", "format=yuv420p,hwupload," + filter + ",hwdownload,format=yuv420p", "-f", "md5", "-",
		},
		Essence: matching(regexp.MustCompile(`^MD5=`)),
	}
}

var (
	colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
	counts  = regexp.MustCompile(`^\s*\d+ test\(s\) (passed|skipped|failed)|Starting tests for|All tests skipped|Pass rate`)
)

// CLBlast returns one of CLBlast's test programs, which checks the device's results against a
// reference.
func CLBlast(name string, args ...string) Program {
	return Program{
		Name: "clblast " + name,
		Args: append([]string{"/usr/bin/clblast_test_" + name}, args...),
		// The program's exit status counts failed tests; it is not an error of the run.
		Essence: func(r Result) (string, error) { return essence(colours.ReplaceAllString(r.Stdout, ""), counts) },
		Limit:   time.Hour, // some compile for many minutes
	}
}

// CLBlastTests returns the names of all installed test programs.
func CLBlastTests() []string {
	paths, _ := filepath.Glob("/usr/bin/clblast_test_*")
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = strings.TrimPrefix(filepath.Base(path), "clblast_test_")
	}
	slices.Sort(names)
	return names
}

// CLPeak returns a program that measures the device. Its numbers may differ; the names of its
// measurements must not.
func CLPeak(args ...string) Program {
	numbers := regexp.MustCompile(`\s*: [\d.]+.*$`)
	return Program{
		Name: "clpeak",
		Args: append([]string{"clpeak"}, args...),
		Essence: func(r Result) (string, error) {
			if r.Err != nil {
				return "", r.Err
			}
			var lines []string
			for l := range strings.SplitSeq(r.Stdout, "\n") {
				lines = append(lines, numbers.ReplaceAllString(l, ""))
			}
			return strings.Join(lines, "\n"), nil
		},
		Limit: 10 * time.Minute,
	}
}

// CLInfo returns a program that prints the results of all queries. Lines that match differ are left
// out, as is the block of the extension of command buffers.
func CLInfo(differ *regexp.Regexp) Program {
	commandBuffers := regexp.MustCompile(`(?m)^ +Command buffer capabilities .*\n( +Required queue properties for command buffer *\n.*\n.*\n)?`)
	return Program{
		Name: "clinfo",
		Args: []string{"clinfo"},
		Essence: func(r Result) (string, error) {
			if r.Err != nil {
				return "", r.Err
			}
			text := commandBuffers.ReplaceAllString(r.Stdout, "")
			lines := slices.DeleteFunc(strings.Split(text, "\n"), differ.MatchString)
			return strings.Join(lines, "\n"), nil
		},
	}
}

// Hashcat returns a program that recovers the plaintext "boat7" from its MD5. Its home folder keeps
// the compiled kernels, which a second run reuses.
func Hashcat() Program {
	const hash = "dd9391ea662c5bae9525adfd9c446c28"
	return Program{
		Name: "hashcat",
		Args: []string{
			"hashcat", "-m", "0", "-a", "3", "--force", "-D", "1,2", "--potfile-disable", "-O", "--quiet", hash, "?l?l?l?l?d",
		},
		Essence: matching(regexp.MustCompile("^" + hash + ":boat7$")),
		Home:    true,
	}
}

// matching returns an Essence that keeps the lines that match, of successful runs.
func matching(want *regexp.Regexp) func(Result) (string, error) {
	return func(r Result) (string, error) {
		if r.Err != nil {
			return "", r.Err
		}
		return essence(r.Stdout, want)
	}
}

func essence(text string, want *regexp.Regexp) (string, error) {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return !want.MatchString(l) })
	if len(lines) == 0 {
		return "", errNoOutput
	}
	return strings.Join(lines, "\n"), nil
}
