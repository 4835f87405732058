package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/suite"
)

// clip makes moving pictures and brings them to the device.
func clip(source, format string) string {
	return fmt.Sprintf("%s=s=320x180:r=25,format=%s,hwupload", source, format)
}

// fetch brings pictures back.
func fetch(format string) string { return ",hwdownload,format=" + format }

// graphs are ffmpeg's filters on a device, by what each asks of the driver that
// others do not: several programs, samplers, other formats of images, two and
// three inputs, programs of the user's own. Not here are deshake, which crashes
// with PoCL 3.1, and tonemap, whose images PoCL does not have.
func graphs(t testing.TB) map[string]string {
	t.Helper()
	kernels, err := filepath.Abs("testdata/filters.cl")
	if err != nil {
		t.Fatal(err)
	}
	yuv, rgba := clip("testsrc2", "yuv420p"), clip("testsrc2", "rgba")
	ramp := "nullsrc=s=320x180:r=25,format=gray16,geq=lum='%s',hwupload"
	all := map[string]string{
		"overlay":  yuv + "[a];" + clip("mandelbrot", "yuv420p") + "[b];[a][b]overlay_opencl=x=40:y=20" + fetch("yuv420p"),
		"xfade":    yuv + "[a];" + clip("mandelbrot", "yuv420p") + "[b];[a][b]xfade_opencl=transition=slideleft:duration=0.3:offset=0.1" + fetch("yuv420p"),
		"remap":    rgba + "[a];" + fmt.Sprintf(ramp, "319-X") + "[b];" + fmt.Sprintf(ramp, "Y/2") + "[c];[a][b][c]remap_opencl" + fetch("rgba"),
		"colorkey": rgba + ",colorkey_opencl=blue:0.3:0.1" + fetch("rgba"),
		"program":  rgba + ",program_opencl=source=" + kernels + ":kernel=swirl" + fetch("rgba"),
		"programs": rgba + "[a];" + clip("mandelbrot", "rgba") + "[b];[a][b]program_opencl=source=" + kernels + ":kernel=weave:inputs=2" + fetch("rgba"),
		"source":   "openclsrc=source=" + kernels + ":kernel=plasma:size=320x180:rate=25:format=rgba" + fetch("rgba"),
		"chain":    yuv + ",avgblur_opencl=3,unsharp_opencl,transpose_opencl=1,pad_opencl=240:360:10:20:red" + fetch("yuv420p"),
	}
	for name, args := range map[string]string{
		"avgblur": "=5", "boxblur": "=5:2", "convolution": "=-2 -1 0 -1 1 1 0 1 2", "dilation": "", "erosion": "", "sobel": "", "prewitt": "",
		"roberts": "", "transpose": "=1", "unsharp": "", "nlmeans": "=s=3:p=3:r=5", "pad": "=400:300:20:30:red",
	} {
		all[name] = yuv + "," + name + "_opencl" + args + fetch("yuv420p")
	}
	return all
}

// filter prints the MD5 of what a graph makes.
func filter(name, graph string, frames int) suite.Program {
	p := suite.FFmpeg(name, frames) // for what of the output counts
	p.Name = "ffmpeg " + name
	p.Args = []string{
		"ffmpeg", "-hide_banner", "-nostdin", "-v", "error", "-init_hw_device", "opencl=gpu:0.0", "-filter_hw_device", "gpu",
		"-filter_complex", graph, "-frames:v", fmt.Sprint(frames), "-f", "md5", "-",
	}
	p.Limit = 3 * time.Minute
	count := p.Essence
	p.Essence = func(r suite.Result) (string, error) {
		// ffmpeg exits with 0 although a filter failed at the first frame.
		if strings.Contains(r.Stdout, md5OfNothing) {
			return "", errors.New("it made no frame: " + r.Stderr)
		}
		return count(r)
	}
	return p
}

const md5OfNothing = "d41d8cd98f00b204e9800998ecf8427e"
