// Package thumbnails tests the example of a workflow that makes thumbnails.
package thumbnails
