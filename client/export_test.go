package client

import "time"

// SetSilence sets how long the client waits for a node that does not answer.
func (c *Client) SetSilence(checkAfter, limit time.Duration) { c.silence = silence{checkAfter, limit} }
