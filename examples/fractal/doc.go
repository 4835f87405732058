// Package fractal tests the example that draws a fractal on a device.
package fractal
