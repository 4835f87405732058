package opencl

import "context"

// maxDiagnostics bounds the lines queued for a client that does not read; further ones are dropped.
const maxDiagnostics = 64

// diagnostics are lines that the driver wrote to standard error, which the node reads and returns.
type diagnostics struct {
	client *client
	lines  chan string
}

// ReportDiagnostic sends a line to the program's standard error. It does not wait, and any
// goroutine may call it.
func (w *Worker) ReportDiagnostic(line string) {
	select {
	case w.diagnostics.lines <- line:
	default: // the client does not read, and the node's log has the line
	}
}

// forward sends the lines until ctx ends.
func (d *diagnostics) forward(ctx context.Context) {
	for {
		select {
		case line := <-d.lines:
			note := argsDiagnostic{Text: append([]byte(line), '\n')}
			if err := d.client.notify(opDiagnostic, note.encode(nil)); err != nil {
				d.client.fail(err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
